// SPDX-License-Identifier: MIT
// Which rows run in the next step.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace deepinfer {

void Scheduler::plan(int64_t now_ns, Batch& batch) {
  CHECK(num_steps_ < kStepsMax);
  now_ns_ = now_ns;
  expire(now_ns);
  wants_drain_ = false;
  batch.tokens.clear();
  batch.sequences.clear();
  batch.verify_budget = 0;
  Step& step = planning();
  step.sequences.clear();
  step.shape.clear();
  plan_decode(batch);
  plan_prompts(batch, now_ns);
  if (batch.empty()) return;
  batch.step = step.number = ++step_;
  ++num_steps_;
}

void Scheduler::plan_decode(Batch& batch) {
  decoding_.clear();
  for (Sequence* s : running_)  // one whose last token is under way has nothing more to run
    if (s->decodes_next() && !s->is_held &&
        s->num_output_tokens() + s->num_coming_tokens < s->request.max_output_tokens)
      decoding_.push_back(s);
  const bool pays = draft_worth_.next_step_drafts(fit_.curve(), static_cast<int64_t>(decoding_.size()));
  step_drafts_ = draft_guard_.next_step_drafts() && (pays || !options_.rests_from_drafts);
  choose_verify_lengths(batch);
  for (size_t i = 0; i < decoding_.size(); ++i) {
    Sequence& s = *decoding_[i];
    if (s.state == SequenceState::kWaiting) continue;  // preempted for one before it
    int64_t num_drafts = verify_lengths_[i];
    if (!reserve(s, longest_after(s, num_drafts), true)) {
      num_drafts = 0;  // the anchor alone, if that fits; else it waits for room
      if (!reserve(s, longest_after(s, 0), true)) {
        if (s.num_steps_under_way > 0) wants_drain_ = true;
        else preempt(s);
        continue;
      }
    }
    if (s.num_steps_under_way > 0) add_following_rows(batch, s, num_drafts);
    else add_decode_rows(batch, s, num_drafts);
  }
}

// Computed tokens of a sequence behind its next rows, if every draft of the steps under way stands, and all of these.
int64_t Scheduler::longest_after(const Sequence& s, int64_t num_drafts) {
  return std::min(s.num_computed_tokens + s.num_scheduled_tokens + 1 + num_drafts,
                  s.num_prompt_tokens() + s.request.max_output_tokens);
}

// The last token of a sequence needs no draft behind it: one row gives it.
int64_t Scheduler::drafts_wanted(const Sequence& s) const {
  return std::max<int64_t>(0, s.request.max_output_tokens - s.num_output_tokens() - s.num_coming_tokens - 1);
}

// The budget comes from the confidences of the step before. With nothing under way the split is made here, from this
// step's confidences (verify_budget.h). Else those do not exist yet: the engine splits when they do, and every sequence
// that follows has room for the most it may get. What a grammar proposes now raises the budget where that alone pays.
void Scheduler::choose_verify_lengths(Batch& batch) {
  live_survivals_.clear();
  foretold_survivals_.clear();
  const float foretold_rate = foretold_rate_.rate();
  for (const Sequence* s : decoding_) {
    const bool follows = s->num_steps_under_way > 0;
    const bool knows_nothing = follows && s->confidences.empty() && s->drafts_come;
    const int64_t num_foretold =
        std::min({follows ? s->num_foretold : s->num_foretold_drafts(), options_.num_drafts, drafts_wanted(*s)});
    if (num_foretold > 0) foretold_survivals_.add_foretold(num_foretold, foretold_rate);
    if (follows && num_foretold > 0) live_survivals_.add_foretold(num_foretold, foretold_rate);
    else if (knows_nothing) live_survivals_.add_certain(std::min(options_.num_drafts, drafts_wanted(*s)));
    else live_survivals_.add_logits(s->confidences, calibration_.temperatures(), drafts_wanted(*s), foretold_rate);
  }
  const bool follows = num_steps_ > 0;
  const SurvivalTable& sizing = follows || stale_survivals_.num_requests() == 0 ? live_survivals_ : stale_survivals_;
  const double num_decoding = static_cast<double>(decoding_.size());
  const VerifyCost cost{.base_ns = std::max(1.0, decode_ns()), .row_ns = fit_.curve().v};
  const int64_t worth_it = std::max(verify_budget(sizing, num_decoding, cost, verify_scratch_),
                                    verify_budget(foretold_survivals_, num_decoding, cost, verify_scratch_));
  const int64_t budget = options_.verifies_all ? live_survivals_.num_drafts() : worth_it;
  if (!follows) {
    split_verify_budget(live_survivals_, budget, verify_scratch_, verify_lengths_);
    std::swap(stale_survivals_, live_survivals_);
    return;
  }
  const auto follows_with_drafts = [this](const Sequence* s) { return s->num_steps_under_way > 0 && verifies(*s); };
  if (std::ranges::all_of(decoding_, follows_with_drafts)) {  // the engine splits all of it
    batch.verify_budget = std::min(budget, live_survivals_.num_drafts());
    verify_lengths_.resize(decoding_.size());
  } else {
    split_verify_budget(live_survivals_, budget, verify_scratch_, verify_lengths_);
    for (size_t i = 0; i < decoding_.size(); ++i)
      batch.verify_budget += follows_with_drafts(decoding_[i]) ? verify_lengths_[i] : 0;
  }
  batch.temperatures.assign(calibration_.temperatures().begin(), calibration_.temperatures().end());
  batch.foretold_rate = foretold_rate;
  for (size_t i = 0; i < decoding_.size(); ++i)
    if (follows_with_drafts(decoding_[i]))
      verify_lengths_[i] = static_cast<int32_t>(std::min(options_.num_drafts, drafts_wanted(*decoding_[i])));
}

// Of a step with one row for each of the sequences that decode, which draft again behind it.
double Scheduler::decode_ns() const {
  const StepTime& curve = fit_.curve();
  const double num_decoding = static_cast<double>(decoding_.size());
  double ns = curve.a + (num_decoding > 1 || step_drafts_ ? curve.r : 0) + (curve.k + curve.v) * num_decoding;
  if (!step_drafts_) return ns;
  const auto num_drafting = std::ranges::count_if(decoding_, [this](const Sequence* s) { return drafts(*s); });
  return ns + (num_drafting > 0 ? curve.s : 0) + curve.p * static_cast<double>(num_drafting);
}

bool Scheduler::drafts(const Sequence& s) const {
  return s.request.draft && options_.has_draft_head && options_.num_drafts > 0;
}

bool Scheduler::verifies(const Sequence& s) const {
  return drafts(s) || (s.request.is_foretold && options_.num_drafts > 0);
}

BatchSequence& Scheduler::add_rows(Batch& batch, const Sequence& s) {
  BatchSequence& rows = batch.sequences.emplace_back();
  rows.id = s.request.id;
  rows.lane = s.lane;
  rows.blocks = &s.blocks;
  rows.limits = s.limits;
  rows.rows = {batch.num_rows(), batch.num_rows()};
  return rows;
}

// From where on rows that make a sequence `num_tokens` long at most may leave a tail: not without a new full block, and
// not before the whole window is of rows that ran here.
std::optional<int64_t> Scheduler::tail_wanted(const Sequence& s, int64_t num_tokens) const {
  const int64_t last = num_tokens / kBlockTokens;
  if (!cache_.tails().is_on() || !s.request.use_prefix_cache || last == s.num_computed_tokens / kBlockTokens)
    return std::nullopt;
  const auto& keys = s.keys.keys();
  if (last <= static_cast<int64_t>(keys.size()) &&
      cache_.tails().contains(keys[static_cast<size_t>(last - 1)], !s.behind_fast_replay))
    return std::nullopt;
  return (BlockTable::blocks_for(s.limits.global_kv_begin) + 1) * kBlockTokens;
}

void Scheduler::note_planned(Sequence& s, const Planned& planned) {
  Step& step = planning();
  step.sequences.push_back(planned);
  ++step.shape.num_sequences;
  step.shape.num_drafting += planned.drafts;
  s.num_scheduled_tokens += planned.num_rows;
  s.num_coming_tokens += planned.num_coming;
  ++s.num_steps_under_way;
  s.last_step = step_ + 1;
  s.drafts_come = planned.drafts;
}

void Scheduler::add_decode_rows(Batch& batch, Sequence& s, int64_t num_drafts) {
  CHECK(s.num_uncomputed_tokens() == 1);
  BatchSequence& rows = add_rows(batch, s);
  rows.position_begin = s.num_computed_tokens;
  batch.tokens.push_back(s.tokens.back());
  batch.tokens.insert(batch.tokens.end(), s.drafts.begin(), s.drafts.begin() + num_drafts);
  rows.rows.end = batch.num_rows();
  rows.num_logits_rows = 1 + num_drafts;
  rows.draft = drafts(s) && step_drafts_;
  rows.tail_from = tail_wanted(s, longest_after(s, num_drafts));
  note_planned(s, {&s, s.request.id, false, 1 + num_drafts, 1, rows.draft});
  planning().shape.num_decode_rows += 1 + num_drafts;
}

void Scheduler::add_following_rows(Batch& batch, Sequence& s, int64_t num_drafts) {
  BatchSequence& rows = add_rows(batch, s);
  rows.follows = true;
  rows.follow_drafts_max = num_drafts;
  rows.num_logits_rows = 1 + num_drafts;
  rows.draft = drafts(s) && step_drafts_;
  rows.tail_from = tail_wanted(s, longest_after(s, num_drafts));
  note_planned(s, {&s, s.request.id, false, 1 + num_drafts, 1, rows.draft});
  ++planning().shape.num_decode_rows;
}

void Scheduler::plan_prompts(Batch& batch, int64_t now_ns) {
  const double budget_ns = static_cast<double>(options_.step_budget_ns);
  decoding_.assign(running_.begin(), running_.end());  // a copy: add_chunk may preempt
  for (Sequence* s : decoding_)
    if (s->state == SequenceState::kPrefill && s->num_unscheduled_tokens() > 0 && !add_chunk(batch, *s, budget_ns))
      return;
  while (Sequence* next = next_waiting(now_ns)) {
    // Room for the first chunk must be there without taking it from those who run: else admissions would thrash.
    const int64_t first_rows = std::min(next->num_uncomputed_tokens(), options_.chunk_rows_min);
    if (cache_.pool().num_available() < BlockTable::blocks_for(first_rows) + static_cast<int64_t>(running_.size())) {
      if (!running_.empty()) return;
    }
    if (batch.num_rows() + num_following_rows(batch) >= options_.rows_max || !admit(*next, now_ns)) return;
    if (next->state == SequenceState::kDecode) add_decode_rows(batch, *next, 0);
    else if (!add_chunk(batch, *next, budget_ns)) return;
  }
}

// Adds rows of one prompt. False when the step is full.
bool Scheduler::add_chunk(Batch& batch, Sequence& s, double budget_ns) {
  if (s.awaits_loads && cache_.is_loading(s.blocks)) return true;
  s.awaits_loads = false;
  StepShape& shape = planning().shape;
  // What the engine will verify is bounded by the budget, so these rows are in the step at most.
  const int64_t rows_left = options_.rows_max - batch.num_rows() - num_following_rows(batch);
  int64_t num_prompt_rows = 0;
  for (const ChunkShape& chunk : shape.chunks) num_prompt_rows += chunk.num_tokens;
  const int64_t begin = s.num_computed_tokens + s.num_scheduled_tokens;
  const int64_t most = std::min(rows_left, s.num_unscheduled_tokens());
  const StepTime curve = fit_.curve_now();
  const double used_ns =
      static_cast<double>(curve.predict_ns(shape)) + curve.v * static_cast<double>(batch.verify_budget);
  const ChunkShape place{0, begin, s.limits.decoder_begin};
  int64_t n = fit_.is_trusted() ? curve.largest_chunk(used_ns, budget_ns, place, most)
                                : std::min(most, options_.token_budget - num_prompt_rows);
  if (num_prompt_rows < options_.chunk_rows_min)
    n = std::max(n, std::min(most, options_.chunk_rows_min - num_prompt_rows));
  // A block of its own that it cannot get now makes it wait; only the oldest prompt may preempt, so two never starve
  // each other.
  if (n <= 0) return false;
  const bool may_preempt = batch.empty();
  while (n > 0 && !reserve(s, begin + n, may_preempt)) n = std::min(n - 1, s.blocks.capacity_tokens() - begin);
  if (n <= 0) return true;
  BatchSequence& rows = add_rows(batch, s);
  rows.position_begin = begin;
  const auto first = s.tokens.begin() + begin;
  rows.history.assign(first - std::min(options_.history_tokens, begin), first);
  batch.tokens.insert(batch.tokens.end(), first, first + n);
  rows.rows.end = batch.num_rows();
  rows.starts_lane = std::exchange(s.starts_lane, false);
  rows.tail = std::exchange(s.tail, nullptr);
  rows.tail_from = tail_wanted(s, begin + n);
  const bool ends = n == s.num_unscheduled_tokens();
  rows.num_logits_rows = ends ? 1 : 0;
  rows.sample = ends;
  rows.draft = ends && drafts(s) && step_drafts_;
  ++s.record.num_chunks;
  shape.chunks.push_back({n, begin, s.limits.decoder_begin});
  note_planned(s, {&s, s.request.id, true, n, ends ? 1 : 0, rows.draft});
  return batch.num_rows() + num_following_rows(batch) < options_.rows_max;
}

int64_t Scheduler::num_following_rows(const Batch& batch) {
  return batch.verify_budget + std::ranges::count_if(batch.sequences, &BatchSequence::follows);
}

}  // namespace deepinfer
