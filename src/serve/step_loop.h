// SPDX-License-Identifier: MIT
// The loop that makes tokens: plan, run, commit, deliver. It owns the scheduler and the prefix cache and drives the
// engine; it knows no sockets and no text. Requests come in from any thread through a bounded inbox; results go out
// through the callback of each request, on the loop's thread.
//
// Pipelined (decision 16): step N + 1 is planned and launched while step N runs; then N is collected and committed, the
// masks that depend on its tokens are made, N + 1 is told to sample, and the tokens of N are delivered. A mask that is
// not there in time keeps nobody else waiting: its sequence gets nothing of the step and is in none until it is there.
// Thread: submit(), cancel(), snapshot() any; everything else the one that calls run_step(), or the loop's own after
// start().
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "engine/block_mover.h"
#include "engine/engine.h"
#include "kv/store_tier.h"
#include "scheduler/scheduler.h"
#include "serve/loop_request.h"
#include "serve/sequence_masks.h"
#include "serve/snapshot_store.h"
#include "serve/token_source.h"

namespace deepinfer {

struct StepLoopOptions {
  SchedulerOptions scheduler;   // sizes that the engine fixes are taken from it
  int64_t num_host_blocks = 0;  // blocks of the host-memory tier
  int64_t tail_bytes_max = 0;   // of window states at the ends of blocks, in host memory; 0 = hits are replayed
  int64_t inbox_max = 4096;     // requests not yet seen by the scheduler
  // For requests that say nothing themselves: refused when their first token is predicted to take longer; 0 = taken.
  int64_t ttft_ns_max = 0;
  StoreTier* store = nullptr;        // the third tier; outlives the loop. Null = none
  int num_mask_threads = 2;          // for masks that cannot be looked up
  int64_t mask_wait_ns = 1'000'000;  // a step waits for them so long at most
  bool drafts_foretold = true;       // what a grammar nearly dictates is drafted, with a draft head or without
  bool pipelined = true;             // false: every step is collected before the next is planned
  bool measures_cpu_time = false;    // steps count as CPU time of the engine thread: benches on shared machines
  bool checks_invariants = false;    // every step; tests
};

class StepLoop final : public TokenSource {
 public:
  // The engine and the clock outlive the loop.
  StepLoop(Engine& engine, const StepLoopOptions& options, const Clock& clock);
  ~StepLoop() override;

  // Hands a request in. Errors: resource_exhausted when the inbox is full, unavailable after stop(). Whether the
  // scheduler takes it is told by the first update (`refused`).
  Result<SequenceId> submit(LoopRequest request, OnLoopUpdate on_update) override;
  void cancel(SequenceId id) override;

  // Plans and launches a step, and collects one: the step before, or the same one where nothing stays under way. On the
  // calling thread; false when there was nothing to run and nothing is under way, though a sequence may wait for its
  // masks or for the store.
  Result<bool> run_step();
  // The same, and where nothing could run a short wait for what sequences wait for; false when no sequence is left.
  Result<bool> run_or_wait();
  // Until no sequence is left (offline use).
  Status run_until_idle();

  void start() override;
  void stop() override;
  StepLoopSnapshot snapshot() const override;
  // Set when a step failed as a whole: the engine is not usable any more, the loop has ended.
  Status failure() const override;

 private:
  struct Live {
    LoopRequest request;  // sequence.prompt stays with the scheduler
    OnLoopUpdate on_update;
    std::vector<TokenId> output;           // kept for a resume after preemption
    std::shared_ptr<SequenceMasks> masks;  // of request.masks; a step that picks with them holds them, too
  };
  // A step between launch and collect.
  struct Flight {
    Batch batch;
    StepMasks masks;
    std::vector<std::shared_ptr<SequenceMasks>> held;  // what `masks` points into
    bool is_sampled = false;
  };
  struct Arrival {
    SequenceId id{};
    LoopRequest request;
    OnLoopUpdate on_update;
  };

  // What waits for the store.
  struct Fetching {
    Arrival arrival;
    std::vector<Arrival> followers;  // choices that share its prompt
    int64_t begin_ns = 0;
  };
  struct Root {
    std::string tenant_salt;
    TtlClass ttl_class{};  // of the last request that began so
  };
  static constexpr size_t kRootsMax = 65'536;

  void take_inbox();
  void accept(Arrival arrival);
  // step_loop_store.cc
  BlockKeyChain key_chain(const SequenceRequest& request) const;
  bool fetch_first(Arrival& arrival);
  Status finish_fetches();
  Result<int64_t> adopt(const StoreFetch& fetch);
  Status save_published();
  void save_tails(const Live& live, std::span<const BlockKey> keys);
  void pin_prompt(const Live& live, std::span<const BlockKey> keys);
  Status hand_over(const StateMove& move);
  void resume_behind(StoreFetch& fetch, LoopRequest& request);
  void note_root(const LoopRequest& request);
  bool cancel_fetch(SequenceId id);
  Flight& flight(int64_t i) { return flights_[static_cast<size_t>((first_flight_ + i) % Scheduler::kStepsMax)]; }
  Result<bool> launch_step();  // false: nothing to run
  Status admit_lanes(const Batch& batch);
  // step_loop_state.cc
  LaneStart lane_start(SequenceId id, int32_t lane) const;
  SequenceFrame describe(SequenceId id) const;
  void finish_copies();
  Status move_state();
  Status save_forks();
  Status sample_newest();
  bool waits_for_masks(const Flight& flight) const;
  Status collect_oldest();
  // step_loop_masks.cc
  void start_masks(Live& live);
  const StepMasks* fill_masks(Flight& flight);
  void advance_masks();
  void wait_for_masks(std::span<const std::shared_ptr<SequenceMasks>> masks);
  void settle_masks();
  bool take_foretold(SequenceId id);
  bool settle(SequenceId id);
  std::span<const TokenId> foretold_by(const SequenceMasks& masks) const;
  bool draft_foretold(const Sequence& sequence, const SequenceMasks& masks);
  int64_t step_ns(const StepOutput& output) const;
  void warn_of_bad_drafts();
  void end_flights();
  Status cause_of(const Live& live, const SequenceDelta& delta) const;
  void deliver(const std::vector<SequenceDelta>& deltas);
  void update_snapshot(const StepOutput& output);
  void update_gauges();
  void loop();

  Engine& engine_;
  const Clock& clock_;
  StepLoopOptions options_;
  PrefixCache cache_;
  Scheduler scheduler_;
  BlockMover mover_;
  SnapshotStore snapshots_;
  std::unordered_map<uint64_t, Live> live_;
  std::unordered_map<uint64_t, Fetching> fetching_;
  std::unordered_map<BlockKey, Root, BlockKeyHash> roots_;  // whose the chains of late prompts are
  std::array<Flight, Scheduler::kStepsMax> flights_;        // a ring, as in the scheduler
  int64_t first_flight_ = 0, num_flights_ = 0;
  std::vector<SequenceId> unsettled_;                       // masks asked for, and not looked at before the next plan
  std::vector<std::shared_ptr<SequenceMasks>> waited_for_;  // scratch
  int64_t num_late_masks_ = 0;
  StepOutput output_;
  bool has_warned_ = false;
  std::vector<SequenceDelta> deltas_;

  mutable std::mutex mutex_;  // guards what stands below
  std::condition_variable wake_;
  std::vector<Arrival> inbox_;
  std::vector<SequenceId> cancels_;
  StepLoopSnapshot snapshot_;
  Status failure_;
  bool stopping_ = false;
  uint64_t next_id_ = 1;
  std::thread thread_;
  std::unique_ptr<MaskWorkers> mask_workers_;  // from the first request with masks on; ends before what it works on
};

}  // namespace deepinfer
