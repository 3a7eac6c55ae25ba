// SPDX-License-Identifier: MIT
// From logits to tokens: picks of every logits row, which drafts of a verify run stand, and the next drafts. Drafts are
// picked with the noise of the positions they propose for, the same that the target will use (decision 6).
#include <algorithm>
#include <string>

#include "engine/engine_state.h"
#include "kernels/op_profile.h"

namespace deepinfer {
namespace {

using State = Engine::State;

std::span<const TokenId> verified_drafts(const State& state, const BatchSequence& sequence) {
  const int64_t num = std::max<int64_t>(0, sequence.num_logits_rows - 1);
  return {state.batch_tokens.data() + sequence.rows.end - num, static_cast<size_t>(num)};
}

void append_logprobs(const SampledToken& token, SequenceOutput& output) {
  TokenLogprobs logprobs{.logprob = token.logprob};
  for (int32_t i = 0; i < token.num_top_logprobs; ++i) {
    const LikelyToken& top = token.top_logprobs[static_cast<size_t>(i)];
    logprobs.likeliest.emplace_back(top.id, top.logprob);
  }
  output.logprobs.push_back(std::move(logprobs));
}

// Walks the verify run: a draft stands while the token picked before it is that draft. Nothing is picked behind the
// end.
void settle(State& state, const BatchSequence& sequence, SequenceOutput& output) {
  Lane& lane = state.lanes[static_cast<size_t>(sequence.lane)];
  const auto drafts = verified_drafts(state, sequence);
  const int64_t num_drafts = static_cast<int64_t>(drafts.size());
  for (int64_t i = 0; i < sequence.num_logits_rows; ++i) {
    const SampledToken& token = state.sampled[static_cast<size_t>(output.logits_begin + i)];
    if (token.error != SampleError::kNone) {
      output.is_finite = token.error != SampleError::kNotFinite;
      output.has_allowed_token = token.error != SampleError::kNothingAllowed;
      lane.is_ended = true;
      return;
    }
    output.tokens.push_back(token.id);
    if (lane.params.top_logprobs) append_logprobs(token, output);
    lane.append(token.id);
    lane.position = sequence.position_begin + sequence.rows.size() - num_drafts + i;
    if (lane.is_ended || i == num_drafts || drafts[static_cast<size_t>(i)] != token.id) return;
    ++output.num_accepted;
  }
}

// Nothing is picked: a step that follows runs the anchor again, with the drafts that the lane has.
void postpone(State& state, const BatchSequence& sequence, SequenceOutput& output) {
  Lane& lane = state.lanes[static_cast<size_t>(sequence.lane)];
  const int64_t anchor = sequence.rows.end - std::max<int64_t>(1, sequence.num_logits_rows);
  lane.last_token = state.batch_tokens[static_cast<size_t>(anchor)];
  lane.position = sequence.position_begin + anchor - sequence.rows.begin;
  output.is_late = true;
  output.num_verified = 0;
}

}  // namespace

bool picks_rows(const State& state) {
  return std::ranges::any_of(state.batch_sequences,
                             [](const BatchSequence& s) { return s.sample && s.num_logits_rows > 0; });
}

void fill_sample_rows(State& state, const StepMasks* masks) {
  state.sample_rows.clear();
  for (size_t s = 0; s < state.batch_sequences.size(); ++s) {
    const BatchSequence& sequence = state.batch_sequences[s];
    const TokenMasks* mask = masks ? (*masks)[s].rows : nullptr;
    const Lane& lane = state.lanes[static_cast<size_t>(sequence.lane)];
    const auto drafts = verified_drafts(state, sequence);
    for (int64_t i = 0; i < sequence.num_logits_rows; ++i) {
      SampleRow row{.params = &lane.params,
                    .history = lane.keeps_history ? &lane.history : nullptr,
                    .output_position = lane.num_output_tokens + i};
      row.drafted = drafts.first(static_cast<size_t>(i));
      if (mask && i < mask->num_rows()) row.mask = mask->row(i);
      state.sample_rows.push_back(row);
    }
  }
}

void settle_rows(State& state, StepContext& step) {
  for (size_t s = 0; s < state.batch_sequences.size(); ++s) {
    if (!state.batch_sequences[s].sample) continue;
    const bool is_late = step.masks && (*step.masks)[s].is_late;
    (is_late ? postpone : settle)(state, state.batch_sequences[s], step.output.sequences[s]);
  }
}

DraftRun plan_drafts(State& state, StepOutput& step) {
  DraftRun run;
  for (size_t s = 0; s < state.batch_sequences.size(); ++s) {
    const BatchSequence& sequence = state.batch_sequences[s];
    SequenceOutput& output = step.sequences[s];
    const bool is_ended = state.lanes[static_cast<size_t>(sequence.lane)].is_ended;
    if (!sequence.draft || output.is_late || !output.is_finite || !output.has_allowed_token) continue;
    if (is_ended && !sequence.draft_anchor) continue;
    if (output.tokens.empty() && !sequence.draft_anchor) continue;
    const int64_t rejected =
        output.tokens.empty() ? 0 : static_cast<int64_t>(verified_drafts(state, sequence).size()) - output.num_accepted;
    DraftSequence draft{.lane = sequence.lane,
                        .position = sequence.position_begin + sequence.rows.size() - rejected,
                        .window_begin = sequence.limits.decoder_window_begin};
    draft.anchor = sequence.draft_anchor ? *sequence.draft_anchor : output.tokens.back();
    run.sequences.push_back(draft);
    run.batch_index.push_back(s);
    run.outputs.push_back(&output);
    run.previous.push_back(draft.anchor);
  }
  run.confidences.resize(run.sequences.size());
  return run;
}

// Behind a draft that would end the sequence nothing can be of use: those drafts are not verified.
void cut_behind_end(State& state, const DraftRun& run) {
  for (size_t s = 0; s < run.sequences.size(); ++s) {
    const Lane& lane = state.lanes[static_cast<size_t>(run.sequences[s].lane)];
    std::vector<TokenId>& drafts = run.outputs[s]->drafts;
    const auto end = std::ranges::find_first_of(drafts, lane.stop_ids);
    if (end == drafts.end()) continue;
    drafts.erase(end + 1, drafts.end());
    run.outputs[s]->confidences.resize(drafts.size());
  }
}

namespace {

Status draft_step(State& state, StepOutput& step) {
  if (state.forward->draft_block() == 0) return {};
  DraftRun run = plan_drafts(state, step);
  if (run.sequences.empty()) return {};
  TRY(state.forward->draft(run.sequences, state.caches));
  const size_t num = run.sequences.size();
  for (int64_t i = 0; i < state.forward->draft_block(); ++i) {
    const auto logits = state.forward->draft_logits(i, run.previous, run.confidences);
    if (i == 0) state.draft_logits = logits.data;
    state.num_draft_logits_rows += static_cast<int64_t>(num);
    const ProfiledPart part(state.options.profile, "picks of drafts (host)");
    state.sample_rows.clear();
    for (size_t s = 0; s < num; ++s) {
      const Lane& lane = state.lanes[static_cast<size_t>(run.sequences[s].lane)];
      state.sample_rows.push_back({.params = &lane.params,
                                   .history = lane.keeps_history ? &lane.history : nullptr,
                                   .drafted = run.outputs[s]->drafts,
                                   .output_position = lane.num_output_tokens + i});
    }
    state.sampled.resize(num);
    state.sampler->sample(logits, state.sample_rows, *state.pool, state.sampled);
    for (size_t s = 0; s < num; ++s) {
      run.previous[s] = state.sampled[s].error == SampleError::kNone ? state.sampled[s].id : 0;
      run.outputs[s]->drafts.push_back(run.previous[s]);
      run.outputs[s]->confidences.push_back(run.confidences[s]);
    }
  }
  cut_behind_end(state, run);
  return state.forward->wait();
}

// Drafts that a grammar proposes; the head's go on behind them where both agree.
void add_foretold(State& state, const BatchSequence& sequence, std::span<const TokenId> foretold,
                  SequenceOutput& output) {
  const Lane& lane = state.lanes[static_cast<size_t>(sequence.lane)];
  if (output.tokens.empty() || lane.is_ended || output.tokens.size() >= foretold.size()) return;
  if (!std::ranges::equal(output.tokens, foretold.first(output.tokens.size()))) return;
  const auto num_drafts_max = static_cast<size_t>(state.options.verify_rows_max - 1);
  foretold = foretold.subspan(output.tokens.size());
  foretold = foretold.first(std::min(foretold.size(), num_drafts_max));
  if (output.drafts.size() < foretold.size() ||
      !std::ranges::equal(std::span(output.drafts).first(foretold.size()), foretold)) {
    output.drafts.assign(foretold.begin(), foretold.end());
    output.confidences.resize(foretold.size());
  }
  std::fill_n(output.confidences.begin(), foretold.size(), kForetoldConfidence);
}

// What the next step begins with, where it is told to follow.
void keep_drafts(State& state, const StepOutput& step) {
  for (size_t s = 0; s < state.batch_sequences.size(); ++s) {
    if (!state.batch_sequences[s].sample || step.sequences[s].is_late) continue;
    Lane& lane = state.lanes[static_cast<size_t>(state.batch_sequences[s].lane)];
    lane.drafts.assign(step.sequences[s].drafts.begin(), step.sequences[s].drafts.end());
    lane.confidences.assign(step.sequences[s].confidences.begin(), step.sequences[s].confidences.end());
  }
}

}  // namespace

Status check_masks(const State& state, const Batch& batch, const StepMasks& masks) {
  if (masks.size() != batch.sequences.size())
    return invalid_argument("sample: masks of " + std::to_string(masks.size()) + " sequences for " +
                            std::to_string(batch.sequences.size()) + " in the step");
  for (size_t s = 0; s < masks.size(); ++s) {
    const TokenMasks* rows = masks[s].rows;
    if (rows && (rows->num_rows() == 0 || rows->vocab_size() != state.config().vocab_size))
      return invalid_argument("sample: the masks of lane " + std::to_string(batch.sequences[s].lane) + " have " +
                              std::to_string(rows->num_rows()) + " rows of " + std::to_string(rows->vocab_size()) +
                              " tokens");
  }
  return {};
}

namespace {

Status pick_on_host(State& state, StepContext& step) {
  TRY(state.forward->wait());
  state.place.part = StepPlace::Part::kSample;
  if (picks_rows(state)) {
    const auto logits = state.forward->logits();
    const ProfiledPart part(state.options.profile, "picks of rows (host)");
    fill_sample_rows(state, step.masks);
    state.sampled.resize(state.sample_rows.size());
    state.sampler->sample(logits, state.sample_rows, *state.pool, state.sampled);
    settle_rows(state, step);
  }
  state.place.part = StepPlace::Part::kDraft;
  TRY(draft_step(state, step.output));
  if (state.spans) state.spans->end();
  return {};
}

}  // namespace

Status run_sampling(State& state, StepContext& step) {
  if (state.batch_tokens.empty()) return {};
  state.draft_columns.clear();
  bool is_picked = false;
  if (state.device_sampler) { ASSIGN_OR_RETURN(is_picked, pick_on_device(state, step)); }
  if (!is_picked) {
    state.num_host_picks += state.device_sampler != nullptr;
    TRY(pick_on_host(state, step));
  }
  if (state.spans) {
    if (!is_picked) TRY(state.device->wait());
    const DeviceSpan span = state.spans->last();
    step.output.device_busy_ns = static_cast<int64_t>(span.busy_ns);
    step.output.device_idle_ns = static_cast<int64_t>(span.idle_ns);
  }
  for (size_t s = 0; step.masks && s < state.batch_sequences.size(); ++s)
    if (state.batch_sequences[s].sample && !step.output.sequences[s].is_late)
      add_foretold(state, state.batch_sequences[s], (*step.masks)[s].foretold, step.output.sequences[s]);
  keep_drafts(state, step.output);
  for (size_t s = 0; s < state.batch_sequences.size(); ++s)
    if (state.batch_sequences[s].tail_from) TRY(record_tail(state, state.batch_sequences[s], step.output.sequences[s]));
  return {};
}

}  // namespace deepinfer
