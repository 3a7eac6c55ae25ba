// SPDX-License-Identifier: MIT
// A source of tokens that costs nothing: with it the HTTP side is measured and tested alone. Every sequence gets one
// token a round, always the same one. Thread: any; rounds are made on its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "serve/token_source.h"

namespace deepinfer {

// How fast it is. `client` is the number that the request gave as its user. What the functions use lives as long as
// they do: the source's thread may still be inside when another pace is set.
struct FreeTokensPace {
  int64_t round_ns = 0;                                     // 0: no time between rounds
  int num_parts = 1;                                        // a round gives to clients of one residue, in turn
  std::function<bool(int client, int64_t token)> may_give;  // null: always
  std::function<void(int client, int64_t token, int64_t now_ns)> on_give;
};

class FreeTokens final : public TokenSource {
 public:
  FreeTokens(TokenId token, const Clock& clock) : token_(token), clock_(clock) {}
  ~FreeTokens() override { stop(); }

  Result<SequenceId> submit(LoopRequest request, OnLoopUpdate on_update) override;
  void cancel(SequenceId id) override;
  void start() override;
  void stop() override;
  StepLoopSnapshot snapshot() const override;
  Status failure() const override { return {}; }

  void set_pace(FreeTokensPace pace);  // from the next round on

 private:
  struct Live {
    LoopRequest request;
    OnLoopUpdate on_update;
    int client = 0;
    int64_t num_given = 0;
  };
  void run();
  bool wait_for_round(std::unique_lock<std::mutex>& lock);
  void take_news();
  bool give(SequenceId id, Live& live);  // whether it was the last

  const TokenId token_;
  const Clock& clock_;
  std::map<SequenceId, Live> live_;  // the thread's own, as are the next four
  FreeTokensPace pace_;
  int64_t next_round_ns_ = 0, round_idx_ = 0;
  int64_t num_given_a_round_ = 1;

  mutable std::mutex mutex_;  // guards what stands below
  std::condition_variable wake_;
  std::map<SequenceId, Live> arrived_;
  std::vector<SequenceId> cancelled_;
  std::vector<FreeTokensPace> next_pace_;  // none or one
  bool stopping_ = false;
  uint64_t next_id_ = 1;
  int64_t num_live_ = 0, num_given_ = 0;
  std::thread thread_;
};

}  // namespace deepinfer
