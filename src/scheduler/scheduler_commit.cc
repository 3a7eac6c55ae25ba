// SPDX-License-Identifier: MIT
// What a finished step changes. Tokens that come after a stop are dropped here and never seen by anyone.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace deepinfer {

void Scheduler::commit(const StepOutput& output, int64_t now_ns, std::vector<SequenceDelta>& deltas) {
  CHECK(num_steps_ > 0);
  now_ns_ = now_ns;
  std::swap(committed_, steps_[static_cast<size_t>(first_step_)]);
  first_step_ = (first_step_ + 1) % kStepsMax;
  --num_steps_;
  CHECK(output.step == committed_.number && output.sequences.size() == committed_.sequences.size());
  committed_.shape.num_decode_rows = committed_.shape.num_sequences = committed_.shape.num_drafting = 0;
  size_t num_deltas = 0;  // entries of `deltas` are reused, their token memory with them
  for (size_t i = 0; i < committed_.sequences.size(); ++i) {
    const Planned& planned = committed_.sequences[i];
    CHECK(output.sequences[i].id == planned.id);
    if (num_deltas == deltas.size()) deltas.emplace_back();
    SequenceDelta& delta = deltas[num_deltas];
    delta.id = planned.id;
    delta.tokens.clear();
    delta.logprobs.clear();
    delta.finished.reset();
    commit_sequence(planned, output, output.sequences[i], now_ns, delta);
    if (delta.finished || !delta.tokens.empty()) ++num_deltas;
  }
  deltas.resize(num_deltas);
  committed_predicted_ns_ = fit_.predict_ns(committed_.shape);
}

void Scheduler::commit_sequence(const Planned& planned, const StepOutput& output, const SequenceOutput& result,
                                int64_t now_ns, SequenceDelta& delta) {
  Sequence& s = *planned.sequence;
  s.num_scheduled_tokens -= planned.num_rows;
  s.num_coming_tokens -= planned.num_coming;
  --s.num_steps_under_way;
  if (!planned.is_prompt) committed_.shape.num_decode_rows += result.num_rows;
  committed_.shape.num_sequences += result.num_rows > 0;
  committed_.shape.num_drafting += !result.drafts.empty();
  if (s.state == SequenceState::kFinished) {  // it ended while this step was under way: nobody sees what came of it
    num_wasted_rows_ += result.num_rows;
    if (s.num_steps_under_way == 0) retire(s);
    return;
  }
  ++s.record.num_steps;
  if (!output.failure.ok()) delta.finished = SequenceEnd::kFailed;
  else if (!result.is_finite) delta.finished = SequenceEnd::kNotFinite;
  else if (!result.has_allowed_token) delta.finished = SequenceEnd::kNothingAllowed;
  else if (result.is_late) commit_late(s, planned, result);
  else if (planned.is_prompt) commit_prompt(s, planned, result, delta, now_ns);
  else commit_decode(s, result, delta);
  if (result.tail && s.num_computed_tokens >= result.tail_position) publish_tail(s, result);
  if (s.record.first_token_ns == 0 && !delta.tokens.empty()) s.record.first_token_ns = now_ns;  // of a forked choice
  if (!result.logprobs.empty())
    delta.logprobs.assign(result.logprobs.begin(), result.logprobs.begin() + static_cast<int64_t>(delta.tokens.size()));
  if (delta.finished) finish(s, *delta.finished, now_ns);
}

void Scheduler::commit_prompt(Sequence& s, const Planned& planned, const SequenceOutput& output, SequenceDelta& delta,
                              int64_t now_ns) {
  s.num_computed_tokens += planned.num_rows;
  publish_full_blocks(s);
  if (s.num_uncomputed_tokens() > 0) {
    CHECK(output.tokens.empty());
    return;
  }
  CHECK(output.tokens.size() == 1);
  s.state = SequenceState::kDecode;
  if (s.num_output_tokens() == 0) fork_prompt(s);
  if (s.record.first_token_ns == 0) s.record.first_token_ns = now_ns;
  append_tokens(s, output.tokens, delta);
  take_drafts(s, output);
}

void Scheduler::commit_decode(Sequence& s, const SequenceOutput& output, SequenceDelta& delta) {
  CHECK(output.num_accepted >= 0 && output.num_accepted <= output.num_verified);
  CHECK(static_cast<int64_t>(output.tokens.size()) == output.num_accepted + 1);
  s.record.num_verified += output.num_verified;
  mean_run_tokens_ += 0.01 * (static_cast<double>(output.tokens.size()) - mean_run_tokens_);
  const int64_t num_foretold = s.num_foretold_drafts();
  const bool is_foretold = num_foretold > 0;
  if (is_foretold) foretold_rate_.add(num_foretold, output.num_verified, output.num_accepted);
  if (!s.drafts.empty() && !is_foretold)
    draft_worth_.add(output.num_verified, static_cast<int64_t>(output.tokens.size()));
  if (output.num_verified > 0 && !is_foretold) {
    draft_guard_.add(output.num_accepted);
    calibration_.add(std::span(s.confidences).first(static_cast<size_t>(output.num_verified)), output.num_verified,
                     output.num_accepted);
  }
  s.record.num_accepted += output.num_accepted;
  s.num_computed_tokens += 1 + output.num_accepted;  // the anchor and the drafts that stand
  append_tokens(s, output.tokens, delta);
  // A stop inside the accepted run: what came after it does not exist.
  s.num_computed_tokens = std::min(s.num_computed_tokens, static_cast<int64_t>(s.tokens.size()) - 1);
  publish_full_blocks(s);
  take_drafts(s, output);
}

// Its last row counts as not run: it is the anchor of the next. What the drafts were is known still.
void Scheduler::commit_late(Sequence& s, const Planned& planned, const SequenceOutput& output) {
  CHECK(output.tokens.empty());
  num_wasted_rows_ += planned.is_prompt ? 1 : output.num_rows;
  if (!planned.is_prompt) return;
  s.num_computed_tokens += planned.num_rows - 1;
  publish_full_blocks(s);
  CHECK(s.num_uncomputed_tokens() == 1);
  s.state = SequenceState::kDecode;
  if (s.num_output_tokens() == 0) fork_prompt(s);
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
  s.num_foretold = 0;
  s.drafts = output.drafts;
  s.confidences = output.confidences;
  CHECK(s.drafts.size() == s.confidences.size());
  if (s.drafts.size() > static_cast<size_t>(options_.num_drafts)) {
    s.drafts.resize(static_cast<size_t>(options_.num_drafts));
    s.confidences.resize(s.drafts.size());
  }
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

void Scheduler::publish_tail(Sequence& s, const SequenceOutput& output) {
  const auto num_blocks = static_cast<size_t>(output.tail_position / kBlockTokens);
  CHECK(num_blocks <= s.keys.keys().size());  // they were published just before
  cache_.publish_tail(std::span(s.keys.keys()).first(num_blocks), {output.tail, s.behind_fast_replay});
}

}  // namespace deepinfer
