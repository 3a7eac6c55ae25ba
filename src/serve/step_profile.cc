// SPDX-License-Identifier: MIT
#include "serve/step_profile.h"

#include <algorithm>
#include <limits>

#include "base/philox.h"

namespace deepinfer {
namespace {

constexpr int64_t kDecodeContext = 64;  // tokens of each sequence that decodes
constexpr int64_t kHistory = 8;         // tokens before a chunk, for Engram; no matter which

class Profiler {
 public:
  Profiler(Engine& engine, const StepProfileOptions& options, const Clock& clock)
      : engine_(engine), options_(options), clock_(clock), end_ns_(clock.monotonic_ns() + options.ns_max) {
    const EngineOptions& limits = engine.options();
    const int64_t context = limits.context_max > 0 ? limits.context_max : limits.blocks_max * kBlockTokens;
    num_long_blocks_ = std::min(BlockTable::blocks_for(std::min<int64_t>(context, 8 * limits.rows_max)),
                                std::max<int64_t>(1, limits.blocks_max / 2));
    const bool is_shared = limits.lanes_max == 1 || limits.blocks_max == num_long_blocks_;
    first_decode_lane_ = is_shared ? 0 : 1;
    num_sequences_max_ = is_shared ? 1
                                   : std::min({options.num_sequences_max, limits.lanes_max - 1,
                                               limits.blocks_max - num_long_blocks_, limits.rows_max});
    num_drafts_ = std::min({options.num_drafts, limits.verify_rows_max - 1, rows_max() - 1});
  }

  Result<StepProfile> run() {
    TRY(start_lanes());
    TRY(run_step(0, 1, num_drafts_));  // touches what is touched once
    profile_.samples.clear();
    TRY(measure_decode());
    TRY(measure_chunks());
    profile_.curve = fit_step_time(profile_.samples, {});
    for (int32_t lane = 0; lane < static_cast<int32_t>(tables_.size()); ++lane) engine_.release(lane);
    return std::move(profile_);
  }

 private:
  bool is_late() const { return clock_.monotonic_ns() >= end_ns_ && profile_.samples.size() >= 2; }

  // Lane 0 takes prompt chunks; the others decode behind a short prompt. An only lane does both, one after the other.
  Status start_lanes() {
    uint32_t next = 0;
    for (int64_t lane = 0; lane < first_decode_lane_ + num_sequences_max_; ++lane) {
      LaneStart start{.lane = static_cast<int32_t>(lane)};
      start.params.temperature = 0;
      TRY(engine_.admit(std::move(start)));
      BlockTable& table = tables_.emplace_back();
      for (int64_t b = lane == 0 ? num_long_blocks_ : 1; b > 0; --b) table.push_back(BlockId{next++});
    }
    for (int64_t lane = first_decode_lane_; lane < first_decode_lane_ + num_sequences_max_; ++lane) {
      Batch batch{.step = num_steps_++};
      add_rows(batch, static_cast<int32_t>(lane), 0, std::min(kDecodeContext, engine_.options().rows_max), 0);
      TRY(run_batch(batch).status());
    }
    return {};
  }

  void add_rows(Batch& batch, int32_t lane, int64_t position, int64_t num_rows, int64_t num_logits) {
    const int64_t begin = batch.num_rows();
    const int64_t vocab = engine_.config().vocab_size;
    for (int64_t i = 0; i < num_rows; ++i) {
      TokenId token = static_cast<TokenId>(rng_.below(static_cast<uint64_t>(vocab)));
      if (token == engine_.config().image_token_id) token = engine_.config().bos_token_id;
      batch.tokens.push_back(token);
    }
    batch.sequences.push_back({.lane = lane,
                               .blocks = &tables_[static_cast<size_t>(lane)],
                               .position_begin = position,
                               .rows = {begin, begin + num_rows},
                               .num_logits_rows = num_logits,
                               .history = std::vector<TokenId>(static_cast<size_t>(std::min(position, kHistory)), 0),
                               .sample = num_logits > 0,
                               .draft = num_logits > 0 && num_drafts_ > 0});
  }

  Result<int64_t> run_batch(const Batch& batch) {
    TRY(engine_.launch(batch));
    TRY(engine_.sample(nullptr));
    TRY(engine_.collect(output_));
    return options_.measures_cpu_time ? output_.cpu_ns : output_.forward_ns + output_.sample_ns;
  }

  // One shape: a chunk of `chunk` tokens behind what lane 0 holds, and `num_sequences` verify runs.
  Status run_step(int64_t chunk, int64_t num_sequences, int64_t num_drafts) {
    StepShape shape;
    if (chunk > 0) shape.chunks = {{chunk, context_}};
    shape.num_sequences = num_sequences + (chunk > 0);
    shape.num_decode_rows = num_sequences * (1 + num_drafts);
    int64_t best = std::numeric_limits<int64_t>::max();
    for (int64_t i = 0; i < options_.num_runs; ++i) {
      Batch batch{.step = num_steps_++};
      for (int64_t s = 0; s < num_sequences; ++s)
        add_rows(batch, static_cast<int32_t>(first_decode_lane_ + s), kDecodeContext, 1 + num_drafts, 1 + num_drafts);
      if (chunk > 0) add_rows(batch, 0, context_, chunk, 1);
      ASSIGN_OR_RETURN(const int64_t ns, run_batch(batch));
      best = std::min(best, ns);
    }
    if (best > 0) profile_.samples.push_back({std::move(shape), best});
    return {};
  }

  Status measure_decode() {
    for (int64_t num = 1;; num = std::min(2 * num, num_sequences_max_)) {
      for (const int64_t num_drafts : {int64_t{0}, num_drafts_ / 2, num_drafts_}) {
        if (is_late()) return {};
        if (num_drafts == 0 || num * (1 + num_drafts) <= rows_max()) TRY(run_step(0, num, num_drafts));
      }
      if (num == num_sequences_max_) return {};
    }
  }

  // Chunks one behind the other, so that the context grows; with decode rows beside them every other time.
  Status measure_chunks() {
    const int64_t capacity = num_long_blocks_ * kBlockTokens;
    const int64_t lengths[] = {16, 64, 128, 256, 512, 1024, 2048};
    for (int round = 0; round < 3; ++round)
      for (const int64_t length : lengths) {
        const int64_t num_beside = round == 1 && first_decode_lane_ > 0 ? std::min<int64_t>(8, num_sequences_max_) : 0;
        if (length + num_beside > engine_.options().rows_max || context_ + length > capacity) continue;
        if (is_late()) return {};
        TRY(run_step(length, num_beside, 0));
        context_ += length;
      }
    return {};
  }

  int64_t rows_max() const { return std::min(engine_.options().rows_max, engine_.options().logits_rows_max); }

  Engine& engine_;
  const StepProfileOptions& options_;
  const Clock& clock_;
  const int64_t end_ns_;
  Rng rng_{1};
  int64_t first_decode_lane_ = 1;
  int64_t num_long_blocks_ = 0, num_sequences_max_ = 0, num_drafts_ = 0;
  std::vector<BlockTable> tables_;  // of each lane
  int64_t context_ = 0;             // of lane 0
  uint64_t num_steps_ = 0;
  StepOutput output_;
  StepProfile profile_;
};

}  // namespace

Result<StepProfile> profile_steps(Engine& engine, const StepProfileOptions& options, const Clock& clock) {
  return Profiler(engine, options, clock).run();
}

}  // namespace deepinfer
