// SPDX-License-Identifier: MIT
// Which rows run in the next step.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace deepinfer {

void Scheduler::plan(int64_t now_ns, Batch& batch) {
  CHECK(planned_.empty());  // one step at a time
  expire(now_ns);
  step_drafts_ = draft_guard_.next_step_drafts();
  batch.tokens.clear();
  batch.sequences.clear();
  planned_shape_.chunks.clear();
  planned_shape_.num_replays = planned_shape_.num_sequences = planned_shape_.num_decode_rows = 0;
  plan_decode(batch);
  plan_prompts(batch, now_ns);
  if (!batch.empty()) batch.step = ++step_;
}

void Scheduler::plan_decode(Batch& batch) {
  decoding_.clear();
  for (Sequence* s : running_)
    if (s->state == SequenceState::kDecode) decoding_.push_back(s);
  choose_verify_lengths();
  for (size_t i = 0; i < decoding_.size(); ++i) {
    Sequence& s = *decoding_[i];
    if (s.state != SequenceState::kDecode) continue;  // preempted for one before it
    int64_t num_drafts = verify_lengths_[i];
    if (!reserve(s, s.num_computed_tokens + 1 + num_drafts, true)) {
      num_drafts = 0;  // the anchor alone, if that fits; else it waits for room
      if (!reserve(s, s.num_computed_tokens + 1, true)) {
        preempt(s);
        continue;
      }
    }
    add_decode_rows(batch, s, num_drafts);
  }
}

// The budget comes from the confidences of the step before, the split from this step's (verify_budget.h).
void Scheduler::choose_verify_lengths() {
  live_survivals_.clear();
  for (const Sequence* s : decoding_) {
    // The last token of a sequence needs no draft behind it: one row gives it.
    const int64_t left = s->request.max_output_tokens - s->num_output_tokens() - 1;
    live_survivals_.add_logits(s->confidences, calibration_.temperatures(), left);
  }
  const SurvivalTable& sizing = stale_survivals_.num_requests() == 0 ? live_survivals_ : stale_survivals_;
  const double num_decoding = static_cast<double>(decoding_.size());
  const StepTime& curve = fit_.curve();
  const VerifyCost cost{.base_ns = std::max(1.0, curve.a + (curve.k + curve.v) * num_decoding), .row_ns = curve.v};
  const int64_t budget = verify_budget(sizing, num_decoding, cost, verify_scratch_);
  split_verify_budget(live_survivals_, budget, verify_scratch_, verify_lengths_);
  std::swap(stale_survivals_, live_survivals_);
}

void Scheduler::add_decode_rows(Batch& batch, Sequence& s, int64_t num_drafts) {
  CHECK(s.num_uncomputed_tokens() == 1);
  BatchSequence& rows = batch.sequences.emplace_back();
  rows.id = s.request.id;
  rows.lane = s.lane;
  rows.blocks = &s.blocks;
  rows.position_begin = s.num_computed_tokens;
  rows.rows.begin = batch.num_rows();
  batch.tokens.push_back(s.tokens.back());
  batch.tokens.insert(batch.tokens.end(), s.drafts.begin(), s.drafts.begin() + num_drafts);
  rows.rows.end = batch.num_rows();
  rows.num_logits_rows = 1 + num_drafts;
  rows.limits = s.limits;
  rows.draft = s.request.draft && options_.num_drafts > 0 && step_drafts_;
  s.num_scheduled_tokens = 1 + num_drafts;
  s.record.num_verified += num_drafts;
  planned_.push_back({&s, false, num_drafts});
  planned_shape_.num_decode_rows += 1 + num_drafts;
  ++planned_shape_.num_sequences;
}

void Scheduler::plan_prompts(Batch& batch, int64_t now_ns) {
  const double budget_ns = static_cast<double>(options_.step_budget_ns);
  decoding_.assign(running_.begin(), running_.end());  // a copy: add_chunk may preempt
  for (Sequence* s : decoding_)
    if (s->state == SequenceState::kPrefill && !add_chunk(batch, *s, budget_ns)) return;
  while (Sequence* next = next_waiting(now_ns)) {
    // Room for the first chunk must be there without taking it from those who run: else admissions would thrash.
    const int64_t first_rows = std::min(next->num_uncomputed_tokens(), options_.chunk_rows_min);
    if (cache_.pool().num_available() < BlockTable::blocks_for(first_rows) + static_cast<int64_t>(running_.size())) {
      if (!running_.empty()) return;
    }
    if (!admit(*next, now_ns)) return;
    if (!add_chunk(batch, *next, budget_ns)) return;
  }
}

// Adds rows of one prompt. False when the step is full.
bool Scheduler::add_chunk(Batch& batch, Sequence& s, double budget_ns) {
  const int64_t rows_left = options_.rows_max - batch.num_rows();
  int64_t num_prompt_rows = 0;
  for (const ChunkShape& chunk : planned_shape_.chunks) num_prompt_rows += chunk.num_tokens;
  const int64_t most = std::min(rows_left, s.num_uncomputed_tokens());
  const double used_ns = static_cast<double>(fit_.curve().predict_ns(planned_shape_));
  int64_t n = fit_.is_trusted() ? fit_.curve().largest_chunk(used_ns, budget_ns, s.num_computed_tokens, most)
                                : std::min(most, options_.token_budget - num_prompt_rows);
  if (num_prompt_rows < options_.chunk_rows_min)
    n = std::max(n, std::min(most, options_.chunk_rows_min - num_prompt_rows));
  // A block of its own that it cannot get now makes it wait; only the oldest prompt may preempt, so two never starve
  // each other.
  if (n <= 0) return false;
  const bool may_preempt = batch.empty();
  while (n > 0 && !reserve(s, s.num_computed_tokens + n, may_preempt))
    n = std::min(n - 1, s.blocks.capacity_tokens() - s.num_computed_tokens);
  if (n <= 0) return true;
  BatchSequence rows;
  rows.id = s.request.id;
  rows.lane = s.lane;
  rows.blocks = &s.blocks;
  rows.position_begin = s.num_computed_tokens;
  rows.rows = {batch.num_rows(), batch.num_rows() + n};
  const auto first = s.tokens.begin() + s.num_computed_tokens;
  rows.history.assign(first - std::min(options_.history_tokens, s.num_computed_tokens), first);
  batch.tokens.insert(batch.tokens.end(), first, first + n);
  rows.starts_lane = std::exchange(s.starts_lane, false);
  const bool ends = n == s.num_uncomputed_tokens();
  rows.num_logits_rows = ends ? 1 : 0;
  rows.sample = ends;
  rows.draft = ends && s.request.draft && options_.num_drafts > 0 && step_drafts_;
  rows.limits = s.limits;
  batch.sequences.push_back(std::move(rows));
  s.num_scheduled_tokens = n;
  ++s.record.num_chunks;
  planned_.push_back({&s, true, 0});
  planned_shape_.chunks.push_back({n, s.num_computed_tokens});
  ++planned_shape_.num_sequences;
  return batch.num_rows() < options_.rows_max;
}

}  // namespace deepinfer
