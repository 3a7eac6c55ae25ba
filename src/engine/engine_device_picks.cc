// SPDX-License-Identifier: MIT
// Picks, drafts and their picks without logits on the host: everything is given to the device at once, and the host
// waits for what was picked, at the end. Which drafts stand the device works out for itself, to draft behind them; the
// host then settles the rows as it does with its own picks, and drops drafts of sequences that have ended.
#include "engine/engine_state.h"
#include "kernels/device_profile.h"

namespace deepinfer {
namespace {

using State = Engine::State;

// Sequences that draft unless the step ends them: those are still among them here.
void plan_draft_rows(State& state, const StepContext& step) {
  state.draft_rows.clear();
  state.draft_sequences.clear();
  state.draft_batch_index.clear();
  if (state.forward->draft_block() == 0) return;
  for (size_t s = 0; s < state.batch_sequences.size(); ++s) {
    const BatchSequence& sequence = state.batch_sequences[s];
    const bool picks = sequence.sample && sequence.num_logits_rows > 0;
    const bool is_late = step.masks && (*step.masks)[s].is_late;
    if (!sequence.draft || is_late || (!picks && !sequence.draft_anchor)) continue;
    const Lane& lane = state.lanes[static_cast<size_t>(sequence.lane)];
    state.draft_rows.push_back({.params = &lane.params,
                                .history = lane.keeps_history ? &lane.history : nullptr,
                                .first_row = step.output.sequences[s].logits_begin,
                                .num_rows = picks ? sequence.num_logits_rows : 0,
                                .anchor = sequence.draft_anchor,
                                .position_end = sequence.position_begin + sequence.rows.size(),
                                .output_position = lane.num_output_tokens});
    state.draft_sequences.push_back({.lane = sequence.lane, .window_begin = sequence.limits.decoder_window_begin});
    state.draft_batch_index.push_back(s);
  }
}

DraftPlaces places_of(const DraftInputs& inputs) {
  return {inputs.tokens, inputs.positions, inputs.window_end, inputs.previous, inputs.block};
}

// Behind work that is no op of the kernel table.
void mark(DeviceProfile* profile, const char* what) {
  if (profile) profile->passed(what);
}

PickHooks hooks_of(DeviceSampler& sampler, OpProfile* ops) {
  DeviceProfile* const profile = ops ? ops->device.get() : nullptr;
  return {.shape = sampler.shape(),
          .pick_rows =
              [&sampler, profile](PickHooks::Logits logits) {
                mark(profile, "between the graphs");
                sampler.pick(logits);
                mark(profile, "picks of rows");
              },
          .start_drafts =
              [&sampler, profile](const DraftInputs& inputs) {
                sampler.start_drafts(places_of(inputs));
                mark(profile, "start of drafts");
              },
          .pick_draft =
              [&sampler, profile](int64_t i, PickHooks::Logits logits, const DraftInputs& inputs) {
                sampler.pick_drafts(i, logits, places_of(inputs));
                mark(profile, "picks of drafts");
              },
          .finish =
              [&sampler, profile] {
                sampler.bring();
                mark(profile, "what was picked brought back");
              }};
}

void read_drafts(State& state, StepOutput& step) {
  const DraftRun run = plan_drafts(state, step);
  const int64_t block = state.forward->draft_block(), num = static_cast<int64_t>(state.draft_sequences.size());
  const std::span<const float> confidences = state.forward->draft_confidences();
  int64_t column = 0;
  for (size_t s = 0; s < run.sequences.size(); ++s) {
    while (state.draft_batch_index[static_cast<size_t>(column)] != run.batch_index[s]) ++column;
    for (int64_t i = 0; i < block; ++i) {
      run.outputs[s]->drafts.push_back(state.device_sampler->draft(i, column));
      run.outputs[s]->confidences.push_back(confidences[static_cast<size_t>(i * num + column)]);
    }
    state.draft_columns.push_back(static_cast<int32_t>(column));
  }
  state.num_draft_logits_rows = block * static_cast<int64_t>(run.sequences.size());
  cut_behind_end(state, run);
}

}  // namespace

Result<bool> pick_on_device(State& state, StepContext& step) {
  state.place.part = StepPlace::Part::kSample;
  const bool picks = picks_rows(state);
  state.sample_rows.clear();
  if (picks) fill_sample_rows(state, step.masks);
  plan_draft_rows(state, step);
  if (state.sample_rows.empty() && state.draft_rows.empty()) {
    if (state.spans) state.spans->end();
    TRY(state.device->wait());  // the next step fills the tables that this one reads
    return true;
  }
  DeviceSampler& sampler = *state.device_sampler;
  const int64_t num_rows = static_cast<int64_t>(state.sample_rows.size()),
                num_drafts = static_cast<int64_t>(state.draft_rows.size());
  const int64_t head_rows = state.forward->num_head_rows();
  const int64_t drafts = num_drafts > 0 ? state.forward->padded_drafts(num_drafts) : 0;
  if (!sampler.prepare(state.sample_rows, state.draft_rows, num_rows > 0 ? head_rows : 0, drafts)) return false;
  while (static_cast<int64_t>(state.draft_sequences.size()) < drafts)
    state.draft_sequences.push_back(state.draft_sequences.back());
  sampler.upload();
  TRY(state.forward->pick_and_draft(state.draft_sequences, state.caches, hooks_of(sampler, state.options.profile)));
  if (state.spans) state.spans->end();
  TRY(state.device->wait());
  state.sampled.resize(state.sample_rows.size());
  sampler.read(state.sampled);
  if (picks) settle_rows(state, step);
  if (!state.draft_rows.empty()) read_drafts(state, step.output);
  return true;
}

}  // namespace deepinfer
