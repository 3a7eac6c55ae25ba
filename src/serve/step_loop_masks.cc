// SPDX-License-Identifier: MIT
// The loop's side of masks: asked for as soon as the tokens before them are settled, looked at when a step is planned
// and when it is told to sample. What is late by then costs its own sequence time and nobody else.
#include <algorithm>

#include "base/check.h"
#include "serve/step_loop.h"

namespace deepinfer {

void StepLoop::start_masks(Live& live) {
  if (!mask_workers_) mask_workers_ = std::make_unique<MaskWorkers>(options_.num_mask_threads);
  live.masks = std::make_shared<SequenceMasks>(std::move(live.request.masks), engine_.config().vocab_size,
                                               scheduler_.num_drafts(), *mask_workers_);
  live.masks->ask({});  // while the prompt runs
}

// Masks of a sequence that follows depend on the tokens of the step before it.
bool StepLoop::waits_for_masks(const Flight& next) const {
  return std::ranges::any_of(next.batch.sequences, [this](const BatchSequence& rows) {
    if (!rows.follows) return false;
    const auto at = live_.find(index(rows.id));
    return at != live_.end() && at->second.masks;
  });
}

// Masks move on behind settled tokens.
void StepLoop::advance_masks() {
  for (const SequenceDelta& delta : deltas_) {
    const auto at = live_.find(index(delta.id));
    CHECK(at != live_.end());
    const Sequence* sequence = scheduler_.find(delta.id);
    if (!at->second.masks || delta.finished || !sequence) continue;
    at->second.masks->accept(delta.tokens);
    at->second.masks->ask(sequence->drafts);
    unsettled_.push_back(delta.id);
  }
}

// For as long as a step may wait. Not for those that were late last time: they would be again.
void StepLoop::wait_for_masks(std::span<const std::shared_ptr<SequenceMasks>> masks) {
  const auto are_there = [&] {
    return std::ranges::all_of(masks, [](const auto& m) { return m->was_late || m->is_ready(); });
  };
  if (!are_there()) mask_workers_->wait(options_.mask_wait_ns, are_there);
}

// In the order of the batch; null when none of its sequences has any.
const StepMasks* StepLoop::fill_masks(Flight& step) {
  step.masks.assign(step.batch.sequences.size(), {});
  step.held.clear();
  for (const BatchSequence& rows : step.batch.sequences) {
    if (rows.num_logits_rows == 0 || !rows.sample) continue;
    const auto at = live_.find(index(rows.id));
    const Sequence* sequence = scheduler_.find(rows.id);  // null: it ended with the step before
    if (at == live_.end() || !at->second.masks || !sequence) continue;
    const auto tokens = std::span(step.batch.tokens).first(static_cast<size_t>(rows.rows.end));
    at->second.masks->ask(rows.follows ? std::span<const TokenId>(sequence->drafts)
                                       : tokens.last(static_cast<size_t>(rows.num_logits_rows - 1)));
    step.held.push_back(at->second.masks);
  }
  if (step.held.empty()) return nullptr;
  wait_for_masks(step.held);
  for (size_t i = 0; i < step.batch.sequences.size(); ++i) {
    const SequenceId id = step.batch.sequences[i].id;
    const auto at = live_.find(index(id));
    if (at == live_.end() || std::ranges::find(step.held, at->second.masks) == step.held.end()) continue;
    SequenceMasks& masks = *at->second.masks;
    masks.was_late = !masks.is_ready();
    if (!masks.was_late) {
      step.masks[i] = {&masks.rows(), false, foretold_by(masks)};
      scheduler_.foretell(id, std::ssize(step.masks[i].foretold) - 1);  // the step gives one token at least
      continue;
    }
    step.masks[i] = {nullptr, true};
    ++num_late_masks_;
    scheduler_.hold(id, true);
    if (std::ranges::find(unsettled_, id) == unsettled_.end()) unsettled_.push_back(id);
  }
  return &step.masks;
}

std::span<const TokenId> StepLoop::foretold_by(const SequenceMasks& masks) const {
  return options_.drafts_foretold && scheduler_.num_drafts() > 0 ? masks.foretold() : std::span<const TokenId>();
}

// Whether the sequence has other drafts now. Precondition: no step of it is under way.
bool StepLoop::draft_foretold(const Sequence& sequence, const SequenceMasks& masks) {
  std::span<const TokenId> foretold = foretold_by(masks);
  foretold = foretold.first(std::min(foretold.size(), static_cast<size_t>(scheduler_.num_drafts())));
  const auto kept = std::span(sequence.drafts).first(std::min(sequence.drafts.size(), foretold.size()));
  if (std::ranges::equal(kept, foretold)) return false;
  scheduler_.foretell_drafts(sequence.request.id, foretold);
  return true;
}

// Before a step is planned: drafts that a mask refuses are not verified where that can still be helped, and who has no
// mask yet gets no rows.
void StepLoop::settle_masks() {
  waited_for_.clear();
  for (const SequenceId id : unsettled_) {
    const Sequence* sequence = scheduler_.find(id);
    const auto at = live_.find(index(id));
    if (sequence && at != live_.end() && sequence->num_steps_under_way == 0 && !sequence->is_held)
      waited_for_.push_back(at->second.masks);
  }
  wait_for_masks(waited_for_);
  // Masks for what the first ones foretell take less than a step, which is what a sequence without them would lose.
  waited_for_.clear();
  for (const SequenceId id : unsettled_)
    if (take_foretold(id)) waited_for_.push_back(live_.at(index(id)).masks);
  wait_for_masks(waited_for_);
  std::erase_if(unsettled_, [this](SequenceId id) { return settle(id); });
}

// Whether the sequence has other drafts now, whose masks were asked for.
bool StepLoop::take_foretold(SequenceId id) {
  const Sequence* sequence = scheduler_.find(id);
  const auto at = live_.find(index(id));
  if (!sequence || at == live_.end() || sequence->num_steps_under_way > 0) return false;
  SequenceMasks& masks = *at->second.masks;
  masks.ask(sequence->drafts);
  if (!masks.is_ready() || !draft_foretold(*sequence, masks)) return false;
  masks.ask(sequence->drafts);
  return true;
}

bool StepLoop::settle(SequenceId id) {
  const Sequence* sequence = scheduler_.find(id);
  const auto at = live_.find(index(id));
  if (!sequence || at == live_.end()) return true;
  SequenceMasks& masks = *at->second.masks;
  if (sequence->num_steps_under_way > 0 && !sequence->is_held) return true;  // looked at when that step samples
  masks.ask(sequence->drafts);
  if (!masks.is_ready()) {
    scheduler_.hold(id, true);
    return false;
  }
  scheduler_.hold(id, false);
  scheduler_.cut_drafts(id, masks.num_drafts_allowed());
  return true;
}

}  // namespace deepinfer
