// SPDX-License-Identifier: MIT
// Bytes on the move around a step: states of preempted and forked sequences, blocks between the device and host memory.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "serve/step_loop.h"

namespace deepinfer {
namespace {

// Copied ahead of their eviction, at most so many at a time: pinned blocks are not free for others.
constexpr int64_t kKeepsUnderWayMax = 4;

}  // namespace

LaneStart StepLoop::lane_start(SequenceId id, int32_t lane) const {
  const Live& live = live_.at(index(id));
  LaneStart start{.lane = lane,
                  .params = live.request.sampling,
                  .prompt = {},
                  .output = live.output,
                  .images = live.request.images,
                  .stop_ids = live.request.sequence.stop_ids,
                  .output_tokens_max = live.request.sequence.max_output_tokens};
  if (needs_history(start.params)) start.prompt = live.request.sequence.prompt;
  return start;
}

SequenceFrame StepLoop::describe(SequenceId id) const {
  const Live& live = live_.at(index(id));
  SequenceFrame frame;
  frame.seed = live.request.sampling.seed;
  frame.choice = live.request.sampling.choice;
  frame.tokens = live.request.sequence.prompt;
  frame.num_prompt_tokens = static_cast<int64_t>(frame.tokens.size());
  frame.tokens.insert(frame.tokens.end(), live.output.begin(), live.output.end());
  return frame;
}

void StepLoop::finish_copies() {
  for (const BlockCopy& copy : mover_.take_finished()) cache_.finish_copy(copy);
}

// Saves come first: what they read may be written by everything after them. Then the copies start; those of evicted
// blocks must be done before anything is written into these blocks, loads and keeps go on during the step.
Status StepLoop::move_state() {
  const std::vector<StateMove> moves = scheduler_.take_state_moves();
  TRY(snapshots_.save(moves, [this](SequenceId id) { return describe(id); }));
  const std::vector<BlockCopy> copies = scheduler_.take_copies();
  const auto loads =
      std::ranges::find(copies, BlockCopy::Direction::kLoad, [](const BlockCopy& copy) { return copy.direction; });
  const auto num_offloads = static_cast<size_t>(loads - copies.begin());
  if (num_offloads > 0) {
    mover_.start(std::span(copies).first(num_offloads));
    mover_.wait_for_all();
  }
  TRY(snapshots_.restore(moves, [this](SequenceId id, int32_t lane) { return engine_.admit(lane_start(id, lane)); }));
  mover_.start(std::span(copies).subspan(num_offloads));
  if (const int64_t room = kKeepsUnderWayMax - mover_.num_under_way(); room > 0) mover_.start(cache_.take_keeps(room));
  return {};
}

// Behind a commit: the state of a prompt that other choices wait for and those of turns that ended, before their lanes
// go to someone else.
Status StepLoop::save_forks() {
  const std::vector<StateMove> moves = scheduler_.take_state_moves();
  TRY(snapshots_.save(moves, [this](SequenceId id) { return describe(id); }));
  for (const StateMove& move : moves)
    if (move.kind == StateMove::Kind::kHandOver) TRY(hand_over(move));
  return snapshots_.restore(moves, [](SequenceId, int32_t) { return internal_error("a restore outside a plan"); });
}

}  // namespace deepinfer
