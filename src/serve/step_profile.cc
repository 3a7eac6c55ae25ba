// SPDX-License-Identifier: MIT
#include "serve/step_profile.h"

#include <algorithm>
#include <vector>

#include "base/philox.h"

namespace deepinfer {
namespace {

constexpr int64_t kDecodeContext = 64;  // tokens of each sequence that decodes
constexpr int64_t kHistory = 8;         // tokens before the first row, for Engram; no matter which

struct StepKind {
  int64_t chunk = 0, context = 0;  // tokens of a prompt, and before them
  bool cuts_decoder = false;       // the chunk's rows end with the encoder
  int64_t num_sequences = 0, num_drafts = 0;
  bool drafts = false;  // behind the decode rows
};

// Tokens behind which selection keeps as many as ever, whatever came before: those of the source that keeps fewest.
int64_t attended_max(const ModelConfig& config) {
  int64_t least = 0;
  for (const int64_t ratio : config.compress_ratios)
    if (ratio > 0) least = least == 0 ? ratio : std::min(least, ratio);
  return least * config.index_top_k;
}

// What stands before the rows of a step has not been computed: it takes the same time whatever is there.
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
    list_decode();
    list_chunks();
    TRY(run_step({.num_sequences = 1, .drafts = options_.has_draft_head}).status());  // touches what is touched once
    std::vector<std::vector<int64_t>> times(kinds_.size());
    for (int64_t i = 0; i < options_.num_runs; ++i)
      for (size_t kind = 0; kind < kinds_.size(); ++kind) {
        if (clock_.monotonic_ns() >= end_ns_ && (i > 0 || kind >= 2)) break;
        // Steps that only decode come one after another: what they find in the caches is theirs.
        if (kinds_[kind].chunk == 0) TRY(run_step(kinds_[kind]).status());
        ASSIGN_OR_RETURN(const int64_t ns, run_step(kinds_[kind]));
        if (ns > 0) times[kind].push_back(ns);
      }
    for (int32_t lane = 0; lane < static_cast<int32_t>(tables_.size()); ++lane) engine_.release(lane);
    StepProfile profile;
    for (size_t kind = 0; kind < kinds_.size(); ++kind) {
      if (times[kind].empty()) continue;
      std::ranges::nth_element(times[kind], times[kind].begin() + static_cast<int64_t>(times[kind].size() / 2));
      profile.samples.push_back({shape_of(kinds_[kind]), times[kind][times[kind].size() / 2]});
    }
    profile.curve = fit_step_time(profile.samples, {.attended_max = attended_max(engine_.config())});
    return profile;
  }

 private:
  // Lane 0 takes prompt chunks; the others decode. An only lane does both, one after the other.
  Status start_lanes() {
    uint32_t next = 0;
    for (int64_t lane = 0; lane < first_decode_lane_ + num_sequences_max_; ++lane) {
      LaneStart start{.lane = static_cast<int32_t>(lane)};
      start.params.temperature = 0;
      TRY(engine_.admit(std::move(start)));
      BlockTable& table = tables_.emplace_back();
      for (int64_t b = lane == 0 ? num_long_blocks_ : 1; b > 0; --b) table.push_back(BlockId{next++});
    }
    return {};
  }

  // The first of each list tell the terms of the curve apart; the others come as far as there is time.
  void list_decode() {
    const int64_t most = num_sequences_max_, few = std::max<int64_t>(1, most / 4);
    const int64_t num_verified = std::min(num_drafts_, rows_max() / most - 1);
    kinds_.push_back({.num_sequences = 1});
    kinds_.push_back({.num_sequences = most});
    if (num_drafts_ > 0) kinds_.push_back({.num_sequences = most, .num_drafts = num_verified});
    if (num_drafts_ > 0 && options_.has_draft_head) {
      kinds_.push_back({.num_sequences = 1, .drafts = true});
      kinds_.push_back({.num_sequences = most, .num_drafts = num_verified, .drafts = true});
      kinds_.push_back({.num_sequences = few, .num_drafts = num_verified, .drafts = true});
      kinds_.push_back({.num_sequences = few, .drafts = true});
    }
    kinds_.push_back({.num_sequences = few});
  }

  void list_chunks() {
    const int64_t most = std::min(engine_.options().rows_max, num_long_blocks_ * kBlockTokens);
    const int64_t end = num_long_blocks_ * kBlockTokens;
    const int64_t some = std::min<int64_t>(most, 64), many = std::min<int64_t>(most, 256);
    std::vector<StepKind> chunks;
    for (const bool cuts : {true, false})
      for (const int64_t length : {some, many}) chunks.push_back({.chunk = length, .cuts_decoder = cuts});
    chunks.push_back({.chunk = many, .context = end - many, .cuts_decoder = true});
    chunks.push_back({.chunk = most, .cuts_decoder = true});
    if (first_decode_lane_ > 0 && most > num_sequences_max_)
      chunks.push_back({.chunk = std::min(many, most - num_sequences_max_), .num_sequences = num_sequences_max_});
    chunks.push_back({.chunk = most, .context = (end - most) / 2});
    // After the first decode kinds, so that both are known when time is short.
    kinds_.insert(kinds_.begin() + 2, chunks.begin(), chunks.begin() + 2);
    kinds_.insert(kinds_.end(), chunks.begin() + 2, chunks.end());
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
                               .sample = num_logits > 0});
  }

  static StepShape shape_of(const StepKind& kind) {
    StepShape shape{.num_sequences = kind.num_sequences + (kind.chunk > 0),
                    .num_decode_rows = kind.num_sequences * (1 + kind.num_drafts),
                    .num_drafting = kind.drafts ? kind.num_sequences : 0};
    if (kind.chunk > 0) shape.chunks = {{kind.chunk, kind.context, decoder_begin(kind)}};
    return shape;
  }
  static int64_t decoder_begin(const StepKind& kind) { return kind.cuts_decoder ? kind.context + kind.chunk : 0; }

  Result<int64_t> run_step(const StepKind& kind) {
    Batch batch{.step = num_steps_++};
    const int64_t num_rows = 1 + kind.num_drafts;
    for (int64_t s = 0; s < kind.num_sequences; ++s) {
      add_rows(batch, static_cast<int32_t>(first_decode_lane_ + s), kDecodeContext, num_rows, num_rows);
      batch.sequences.back().draft = kind.drafts;
    }
    if (kind.chunk > 0) {
      add_rows(batch, 0, kind.context, kind.chunk, 0);
      RowLimits& limits = batch.sequences.back().limits;
      limits.decoder_begin = limits.decoder_window_begin = decoder_begin(kind);
    }
    TRY(engine_.launch(batch));
    TRY(engine_.sample(nullptr));
    TRY(engine_.collect(output_));
    return options_.measures_cpu_time ? output_.cpu_ns : output_.forward_ns + output_.sample_ns;
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
  std::vector<StepKind> kinds_;
  uint64_t num_steps_ = 0;
  StepOutput output_;
};

}  // namespace

Result<StepProfile> profile_steps(Engine& engine, const StepProfileOptions& options, const Clock& clock) {
  return Profiler(engine, options, clock).run();
}

}  // namespace deepinfer
