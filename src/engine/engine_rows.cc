// SPDX-License-Identifier: MIT
// The forward pass of a step, on the engine's thread. Rows of sequences that follow are filled in first: the lane knows
// the last token, its position and the drafts; the verify budget is split over the drafts that exist now.
#include <string>

#include "engine/engine_state.h"
#include "kernels/op_profile.h"

namespace deepinfer {
namespace {

using State = Engine::State;

Lane& lane_of(State& state, const BatchSequence& sequence) { return state.lanes[static_cast<size_t>(sequence.lane)]; }

bool runs(const Lane& lane) { return lane.last_token && !lane.is_ended; }

// Drafts to verify of each sequence that follows, in batch order.
void split_budget(State& state, const Batch& batch) {
  state.survivals.clear();
  for (const BatchSequence& sequence : batch.sequences) {
    if (!sequence.follows) continue;
    const Lane& lane = lane_of(state, sequence);
    const int64_t most = runs(lane) ? std::min(sequence.follow_drafts_max, lane.drafts_wanted()) : 0;
    state.survivals.add_logits(lane.confidences, batch.temperatures, most, batch.foretold_rate);
  }
  split_verify_budget(state.survivals, batch.verify_budget, state.verify_scratch, state.verify_lengths);
}

void follow(State& state, BatchSequence& sequence, int32_t num_drafts) {
  const Lane& lane = lane_of(state, sequence);
  if (!runs(lane)) {
    sequence.num_logits_rows = 0;
    sequence.sample = sequence.draft = false;
    return;
  }
  sequence.position_begin = lane.position;
  sequence.num_logits_rows = 1 + num_drafts;
  state.batch_tokens.push_back(*lane.last_token);
  state.batch_tokens.insert(state.batch_tokens.end(), lane.drafts.begin(), lane.drafts.begin() + num_drafts);
}

void resolve_rows(State& state, const Batch& batch) {
  split_budget(state, batch);
  state.batch_tokens.clear();
  state.batch_sequences = batch.sequences;
  size_t num_following = 0;
  for (BatchSequence& sequence : state.batch_sequences) {
    const int64_t begin = static_cast<int64_t>(state.batch_tokens.size());
    if (sequence.follows) {
      follow(state, sequence, state.verify_lengths[num_following++]);
    } else {
      const auto first = batch.tokens.begin() + sequence.rows.begin;
      state.batch_tokens.insert(state.batch_tokens.end(), first, first + sequence.rows.size());
    }
    sequence.rows = {begin, static_cast<int64_t>(state.batch_tokens.size())};
  }
}

std::span<const TokenId> tokens_of(const State& state, const BatchSequence& sequence) {
  return std::span(state.batch_tokens)
      .subspan(static_cast<size_t>(sequence.rows.begin), static_cast<size_t>(sequence.rows.size()));
}

Status build_rows(State& state, const StepContext& step) {
  const int64_t hidden = state.config().hidden;
  state.sequence_rows.clear();
  state.image_rows.assign(state.batch_tokens.size(), nullptr);
  state.ngrams.clear();
  for (size_t s = 0; s < state.batch_sequences.size(); ++s) {
    const BatchSequence& sequence = state.batch_sequences[s];
    if (sequence.rows.empty()) continue;
    if (sequence.tail) TRY(start_from_tail(state, sequence));
    const Lane& lane = lane_of(state, sequence);
    const RowLimits& limits = sequence.limits;
    const Range table = step.tables[s];
    state.sequence_rows.push_back(
        {sequence.lane, sequence.rows, sequence.position_begin,
         std::span(step.blocks).subspan(static_cast<size_t>(table.begin), static_cast<size_t>(table.size())),
         sequence.num_logits_rows, limits.decoder_begin, limits.window_begin, limits.decoder_window_begin,
         limits.global_kv_begin});
    for (int64_t i = 0; i < sequence.rows.size() && !lane.images.empty(); ++i)
      state.image_rows[static_cast<size_t>(sequence.rows.begin + i)] =
          lane.image_row(sequence.position_begin + i, hidden);
    if (state.hasher)
      TRY(append_ngrams(lane, sequence, tokens_of(state, sequence), state.hasher->look_back(), state.ngrams));
  }
  return {};
}

void remember_rows(State& state) {
  for (const BatchSequence& sequence : state.batch_sequences) {
    if (sequence.rows.empty()) continue;
    lane_of(state, sequence).note_rows(sequence.position_begin, sequence.rows.size());
    if (state.hasher)
      remember_tokens(lane_of(state, sequence), sequence, tokens_of(state, sequence), state.hasher->look_back());
  }
}

void describe_rows(const State& state, StepOutput& output) {
  int64_t logits_begin = 0;
  for (size_t s = 0; s < output.sequences.size(); ++s) {
    const BatchSequence& sequence = state.batch_sequences[s];
    output.sequences[s].num_rows = sequence.rows.size();
    output.sequences[s].logits_begin = logits_begin;
    if (sequence.sample) output.sequences[s].num_verified = std::max<int64_t>(0, sequence.num_logits_rows - 1);
    logits_begin += sequence.num_logits_rows;
  }
}

// On a device the layers are one launch, which cannot be stopped between two of them.
Status run_layers(State& state) {
  Forward& forward = *state.forward;
  if (state.device && !state.options.on_layer) {
    TRY(check_time(state));
    return forward.run();
  }
  TRY(forward.embed());
  for (int layer = 0; layer < state.config().num_layers; ++layer) {
    state.place.layer = layer;
    if (state.options.on_layer) state.options.on_layer(state.place.step, layer);
    TRY(check_time(state));
    TRY(forward.inject_engram(layer));
    TRY(forward.run_layer(layer));
  }
  return forward.finish();
}

// Its sequences are in an unknown state: nothing follows them.
void end_sequences(State& state) {
  for (const BatchSequence& sequence : state.batch_sequences) lane_of(state, sequence).is_ended = true;
}

// Everything of a step that is known before its ops run: its rows, their tables and Engram rows.
Status begin_forward(State& state, StepContext& step) {
  const ProfiledPart part(state.options.profile, "rows and tables (host)");
  state.place.part = StepPlace::Part::kBegin;
  state.machine().make_current();  // jobs may run on a thread of their own
  resolve_rows(state, step.batch);
  state.num_draft_logits_rows = 0;
  describe_rows(state, step.output);
  if (state.batch_tokens.empty()) return {};
  TRY(build_rows(state, step));
  TRY(state.forward->begin({.tokens = state.batch_tokens,
                            .sequences = state.sequence_rows,
                            .image_rows = state.image_rows,
                            .ngrams = state.ngrams},
                           state.caches));
  remember_rows(state);
  return {};
}

}  // namespace

Status run_forward(State& state, StepContext& step) {
  TRY(begin_forward(state, step));
  if (state.batch_tokens.empty()) return {};
  if (state.spans) state.spans->begin();  // behind the host's work for the step: while it lasts the device has none
  state.place.part = StepPlace::Part::kForward;
  const Status ran = run_layers(state);
  if (ran.ok() || ran.code() != StatusCode::kUnavailable) return ran;
  step.output.failure = ran;
  end_sequences(state);
  return {};
}

Status check_time(const State& state) {
  const int64_t limit_ns = state.options.step_ns_max;
  if (limit_ns == 0) return {};
  const int64_t ns = state.clock().monotonic_ns() - state.step_begin_ns;
  if (ns <= limit_ns) return {};
  return unavailable("engine: stopped in " + describe_place(state) + ", after " + std::to_string(ns / 1'000'000) +
                     " ms of at most " + std::to_string(limit_ns / 1'000'000));
}

std::string describe_place(const State& state) {
  const std::string step = "step " + std::to_string(state.place.step) + ", ";
  switch (state.place.part) {
    case StepPlace::Part::kNone: return step + "between its parts";
    case StepPlace::Part::kBegin: return step + "laying out its rows";
    case StepPlace::Part::kForward:
      return step + "layer " + std::to_string(state.place.layer) + " of " + std::to_string(state.config().num_layers);
    case StepPlace::Part::kSample: return step + "sampling";
    case StepPlace::Part::kDraft: return step + "drafting";
  }
  return step;
}

}  // namespace deepinfer
