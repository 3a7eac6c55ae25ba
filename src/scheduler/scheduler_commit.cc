// SPDX-License-Identifier: MIT
// What a finished step changes. Tokens that come after a stop are dropped here and never seen by anyone.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace deepinfer {

void Scheduler::commit(const StepOutput& output, int64_t now_ns, std::vector<SequenceDelta>& deltas) {
  CHECK(output.step == step_ && output.sequences.size() == planned_.size());
  size_t num_deltas = 0;  // entries of `deltas` are reused, their token memory with them
  for (size_t i = 0; i < planned_.size(); ++i) {
    Sequence& s = *planned_[i].sequence;
    const SequenceOutput& result = output.sequences[i];
    const SequenceId id = s.request.id;
    CHECK(result.id == id);
    if (num_deltas == deltas.size()) deltas.emplace_back();
    SequenceDelta& delta = deltas[num_deltas];
    delta.id = id;
    delta.tokens.clear();
    delta.logprobs.clear();
    delta.finished.reset();
    ++s.record.num_steps;
    if (!result.is_finite) {
      s.num_scheduled_tokens = 0;
      delta.finished = SequenceEnd::kNotFinite;
    } else if (!result.has_allowed_token) {
      s.num_scheduled_tokens = 0;
      delta.finished = SequenceEnd::kNothingAllowed;
    } else if (planned_[i].is_prompt) {
      commit_prompt(s, result, delta, now_ns);
    } else {
      commit_decode(s, result, planned_[i].num_drafts, delta);
    }
    if (!delta.finished && std::ranges::find(cancelled_, id) != cancelled_.end())
      delta.finished = SequenceEnd::kCancelled;
    if (!result.logprobs.empty())
      delta.logprobs.assign(result.logprobs.begin(),
                            result.logprobs.begin() + static_cast<int64_t>(delta.tokens.size()));
    if (delta.finished || !delta.tokens.empty()) ++num_deltas;
    if (delta.finished) {
      finish(s, *delta.finished, now_ns);
      sequences_.erase(id);
    }
  }
  deltas.resize(num_deltas);
  planned_.clear();
  cancelled_.clear();
}

void Scheduler::commit_prompt(Sequence& s, const SequenceOutput& output, SequenceDelta& delta, int64_t now_ns) {
  s.num_computed_tokens += std::exchange(s.num_scheduled_tokens, 0);
  publish_full_blocks(s);
  if (s.num_uncomputed_tokens() > 0) {
    CHECK(output.tokens.empty());
    return;
  }
  CHECK(output.tokens.size() == 1);
  s.state = SequenceState::kDecode;
  if (s.record.first_token_ns == 0) s.record.first_token_ns = now_ns;
  append_tokens(s, output.tokens, delta);
  take_drafts(s, output);
}

void Scheduler::commit_decode(Sequence& s, const SequenceOutput& output, int64_t num_drafts, SequenceDelta& delta) {
  CHECK(output.num_accepted >= 0 && output.num_accepted <= num_drafts);
  CHECK(static_cast<int64_t>(output.tokens.size()) == output.num_accepted + 1);
  s.num_scheduled_tokens = 0;
  if (num_drafts > 0) draft_guard_.add(output.num_accepted);
  if (num_drafts > 0)
    calibration_.add(std::span(s.confidences).first(static_cast<size_t>(num_drafts)), num_drafts, output.num_accepted);
  s.record.num_accepted += output.num_accepted;
  s.num_computed_tokens += 1 + output.num_accepted;  // the anchor and the drafts that stand
  append_tokens(s, output.tokens, delta);
  // A stop inside the accepted run: what came after it does not exist.
  s.num_computed_tokens = std::min(s.num_computed_tokens, static_cast<int64_t>(s.tokens.size()) - 1);
  publish_full_blocks(s);
  take_drafts(s, output);
}

void Scheduler::append_tokens(Sequence& s, std::span<const TokenId> tokens, SequenceDelta& delta) {
  for (const TokenId token : tokens) {
    s.tokens.push_back(token);
    delta.tokens.push_back(token);
    if (std::ranges::find(s.request.stop_ids, token) != s.request.stop_ids.end()) delta.finished = SequenceEnd::kStop;
    else if (s.num_output_tokens() >= s.request.max_output_tokens) delta.finished = SequenceEnd::kLength;
    if (delta.finished) return;
  }
}

void Scheduler::take_drafts(Sequence& s, const SequenceOutput& output) {
  s.drafts = output.drafts;
  s.confidences = output.confidences;
  CHECK(s.drafts.size() == s.confidences.size());
  s.record.num_drafted += static_cast<int64_t>(s.drafts.size());
}

void Scheduler::publish_full_blocks(Sequence& s) {
  if (!s.request.use_prefix_cache) return;
  const int64_t num_full = s.num_computed_tokens / kBlockTokens;
  if (num_full <= s.num_published_blocks) return;
  s.keys.extend(std::span(s.tokens).first(static_cast<size_t>(s.num_computed_tokens)), s.request.media);
  cache_.publish(s.blocks, s.keys.keys(), {s.num_published_blocks, num_full}, s.behind_fast_replay);
  s.num_published_blocks = num_full;
}

}  // namespace deepinfer
