// SPDX-License-Identifier: MIT
// One token stream being generated, as the scheduler sees it: tokens, counters, blocks, and a record of what happened.
// Exactly four counters: num_prompt_tokens (given), num_computed_tokens (global KV and state exist),
// num_scheduled_tokens (in the steps under way), num_output_tokens (generated). Thread: plan.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "kv/prefix_cache.h"
#include "kv/tail_cache.h"
#include "scheduler/batch.h"
#include "scheduler/replay_plan.h"
#include "scheduler/state_move.h"

namespace deepinfer {

enum class SequenceEnd { kStop, kLength, kCancelled, kDeadline, kNotFinite, kNothingAllowed, kFailed };

// What serve asks for. The tokens are final: templates, images and limits were settled before.
struct SequenceRequest {
  SequenceId id{};
  std::vector<TokenId> prompt;   // at least one token
  std::vector<MediaSpan> media;  // image spans of the prompt
  std::vector<BlockKey> keys;    // of the prompt's full blocks, where they are known already; empty: they are hashed
  std::string tenant_salt;
  int32_t priority = 0;            // lower runs first
  int64_t max_output_tokens = 16;  // at least 1
  std::vector<TokenId> stop_ids;   // generation ends with one of these; it is part of the output
  bool draft = true;               // the draft head may propose
  bool is_foretold = false;        // a grammar may propose drafts, too, where there is no head as well
  bool use_prefix_cache = true;
  ReplayMode replay = ReplayMode::kFast;
  // The same prompt as that sequence's, which was submitted before: it is computed once, if that one has not ended.
  std::optional<SequenceId> prompt_of;
  // Goes on there, where all blocks before it are hits; with exact replay only, for the state must be a cold run's. It
  // is dropped when it is not needed any more.
  std::optional<ResumePoint> resume;
  bool hands_over = false;             // its state is handed over when it ends by itself, if a cold run's is the same
  std::optional<int64_t> deadline_ns;  // on the plan clock: ends with kDeadline
  std::optional<int64_t> ttft_ns_max;  // refuse at submit when the predicted time to first token is longer
};

// What happened to a request; printed by --explain and handed to the server.
struct SequenceRecord {
  int64_t arrival_ns = 0, admitted_ns = 0, first_token_ns = 0, finished_ns = 0;
  int64_t num_cached_tokens = 0;    // prefix hit at first admission
  int64_t num_replayed_tokens = 0;  // recomputed behind the hit
  MissReason miss_reason = MissReason::kNone;
  int64_t num_tail_tokens = 0;     // the hit's windows were stored up to here: nothing before was replayed
  int64_t num_resumed_tokens = 0;  // it went on behind a stored state, all of its beginning
  std::string replay_reason;       // why a hit was not adopted
  int64_t num_chunks = 0, num_steps = 0;
  int64_t num_drafted = 0, num_verified = 0, num_accepted = 0;
  int64_t num_preemptions = 0, num_loaded_blocks = 0;
  int64_t num_shared_tokens = 0;                    // of the prompt: computed once for all choices, by the first
  int64_t num_offloaded_bytes = 0;                  // of its state, when it was preempted without throwing it away
  int64_t num_loaded_bytes = 0;                     // and back
  int64_t num_store_tokens = 0, store_wait_ns = 0;  // of the prompt: read from the store, and waited for it
  std::string store_reason;                         // why the store's part ended; empty: it was not asked
  int64_t num_blocks_max = 0;                       // most blocks it held
  int64_t num_kv_bytes = 0;                         // of these blocks and of its lane
  std::vector<BlockKey> block_keys;                 // of prompt and output, as far as blocks were published
};

// Where a preempted sequence's state waits.
struct Snapshot {
  SnapshotId id{};
  int64_t num_bytes = 0;
  int64_t num_computed_tokens = 0;
};

inline constexpr int64_t kOutputTokensExpected = 8192;

enum class SequenceState { kWaiting, kPrefill, kDecode, kFinished };

struct Sequence {
  Sequence(SequenceRequest r, const KeyScope& scope) : request(std::move(r)), tokens(request.prompt), keys(scope) {}

  SequenceRequest request;
  std::vector<TokenId> tokens;  // prompt, then output
  BlockKeyChain keys;
  SequenceState state = SequenceState::kWaiting;
  std::optional<SequenceEnd> end;
  int32_t lane = -1;         // while running
  bool starts_lane = false;  // its next rows are the first on this lane
  BlockTable blocks;
  RowLimits limits;
  int64_t num_computed_tokens = 0;
  int64_t num_scheduled_tokens = 0;  // rows in the steps under way: exact for a prompt, else at most
  int64_t num_coming_tokens = 0;     // output tokens that those steps give at least
  int32_t num_steps_under_way = 0;   // steps that have rows of it: until they are committed nothing of it is freed
  uint64_t last_step = 0;            // planned last
  bool drafts_come = false;          // behind the tokens of that step
  int64_t num_published_blocks = 0;
  TailBytes tail;                           // that its first rows go on behind
  bool behind_fast_replay = false;          // what it computes must not serve exact requests
  bool is_held = false;                     // gets no rows while it decodes
  bool awaits_loads = false;                // a block of its hit is still being loaded
  std::optional<Snapshot> snapshot;         // while preempted
  std::optional<SequenceId> awaited;        // whose prompt it shares, until it starts
  std::vector<SequenceId> waiting_choices;  // that share its prompt, until the prompt ends
  std::optional<int64_t>
      first_hit_tokens;            // of the first admission: a resume under fast replay must not see a longer hit
  std::vector<TokenId> drafts;     // proposed after the last token
  std::vector<float> confidences;  // raw, of `drafts`
  int64_t num_foretold = 0;        // drafts of the next step, at most, that a grammar proposes: no head says how likely
  SequenceRecord record;

  // Drafts at the front that a grammar proposed.
  int64_t num_foretold_drafts() const {
    return std::ranges::find_if(confidences, [](float c) { return c != kForetoldConfidence; }) - confidences.begin();
  }
  int64_t num_prompt_tokens() const { return static_cast<int64_t>(request.prompt.size()); }
  int64_t num_output_tokens() const { return static_cast<int64_t>(tokens.size()) - num_prompt_tokens(); }
  int64_t num_uncomputed_tokens() const { return static_cast<int64_t>(tokens.size()) - num_computed_tokens; }
  // Room for what it will probably become, so that its steps allocate nothing; a very long one grows when it does.
  int64_t num_tokens_expected() const {
    return num_prompt_tokens() + std::min(request.max_output_tokens, kOutputTokensExpected);
  }
  void reserve() {
    tokens.reserve(static_cast<size_t>(num_tokens_expected()));
    keys.reserve(num_tokens_expected());
  }
  // Not in any step yet. For a sequence that decodes in the step under way this says nothing.
  int64_t num_unscheduled_tokens() const { return num_uncomputed_tokens() - num_scheduled_tokens; }
  // Its next rows are an anchor and drafts: it decodes, or the last of its prompt is under way.
  bool decodes_next() const {
    return state == SequenceState::kDecode || (state == SequenceState::kPrefill && num_unscheduled_tokens() == 0);
  }
};

}  // namespace deepinfer
