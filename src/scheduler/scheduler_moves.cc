// SPDX-License-Identifier: MIT
// Sequences whose state is kept while they do not run: preempted ones with a snapshot, and the choices of a request
// that wait for the prompt of the first.
#include <algorithm>
#include <utility>

#include "base/check.h"
#include "scheduler/scheduler.h"

namespace deepinfer {

std::vector<StateMove> Scheduler::take_state_moves() { return std::exchange(moves_, {}); }

int64_t Scheduler::state_bytes(int64_t num_blocks) const {
  return options_.snapshots.record_bytes + num_blocks * options_.snapshots.block_bytes;
}

// Of the state on the sequence's lane, as it is at `position`; the bytes of these of its blocks travel along.
void Scheduler::move_lane(StateMove::Kind kind, SnapshotId snapshot, const Sequence& s, int64_t position,
                          Range blocks) {
  const auto first = s.blocks.blocks().begin();
  moves_.push_back({.kind = kind,
                    .snapshot = snapshot,
                    .id = s.request.id,
                    .lane = s.lane,
                    .position = position,
                    .limits = s.limits,
                    .blocks = {first + blocks.begin, first + blocks.end}});
}

// Called by preempt() while the sequence still has its lane and blocks.
void Scheduler::save_state(Sequence& s) {
  const int64_t num_blocks = BlockTable::blocks_for(s.num_computed_tokens), bytes = state_bytes(num_blocks);
  const double recompute_ns = prompt_ns({s.num_computed_tokens, 0});
  if (s.num_computed_tokens == 0 || s.starts_lane ||
      !is_worth_a_snapshot(options_.snapshots, bytes, options_.snapshots.bytes_max - snapshot_bytes_, recompute_ns))
    return;
  s.snapshot = Snapshot{static_cast<SnapshotId>(next_snapshot_++), bytes, s.num_computed_tokens};
  snapshot_bytes_ += bytes;
  s.record.num_offloaded_bytes += bytes;
  move_lane(StateMove::Kind::kSave, s.snapshot->id, s, s.num_computed_tokens, {0, num_blocks});
}

void Scheduler::drop_snapshot(Sequence& s) {
  if (!s.snapshot) return;
  snapshot_bytes_ -= s.snapshot->num_bytes;
  moves_.push_back({.kind = StateMove::Kind::kDrop, .snapshot = s.snapshot->id, .id = s.request.id});
  s.snapshot.reset();
}

void Scheduler::take_lane(Sequence& s, SequenceState state) {
  s.lane = free_lanes_.back();
  free_lanes_.pop_back();
  s.state = state;
  running_.push_back(&s);
  std::erase(waiting_, &s);
}

// Goes on where the snapshot was taken. False when there is not enough room yet.
bool Scheduler::resume_from_snapshot(Sequence& s) {
  const Snapshot snapshot = *s.snapshot;
  // Alone it may take what waiting choices hold; else it would wait for them and they for it.
  if (!reserve(s, snapshot.num_computed_tokens + 1, running_.empty() && num_steps_ == 0)) return false;
  s.num_computed_tokens = snapshot.num_computed_tokens;
  s.num_published_blocks = 0;  // its blocks are fresh ones: they are offered again as it goes on
  take_lane(s, s.num_uncomputed_tokens() == 1 && s.num_output_tokens() > 0 ? SequenceState::kDecode
                                                                           : SequenceState::kPrefill);
  s.starts_lane = false;
  s.record.num_loaded_bytes += snapshot.num_bytes;
  move_lane(StateMove::Kind::kRestore, snapshot.id, s, s.num_computed_tokens,
            {0, BlockTable::blocks_for(s.num_computed_tokens)});
  drop_snapshot(s);
  return true;
}

// ---- From one turn to the next ----

// The caller's next step writes nothing below the position; full blocks travel by themselves.
void Scheduler::hand_over(Sequence& s) {
  if (!s.request.hands_over || s.request.replay != ReplayMode::kExact || s.behind_fast_replay || s.lane < 0 ||
      s.starts_lane || s.num_computed_tokens < kBlockTokens)
    return;
  const int64_t num_full = s.num_computed_tokens / kBlockTokens;
  move_lane(StateMove::Kind::kHandOver, {}, s, s.num_computed_tokens,
            {num_full, BlockTable::blocks_for(s.num_computed_tokens)});
  s.keys.extend(std::span(s.tokens).first(static_cast<size_t>(s.num_computed_tokens)), s.request.media);
  moves_.back().last_full_key = s.keys.keys()[static_cast<size_t>(num_full - 1)];
}

void Scheduler::drop_record(Sequence& s) {
  if (!s.request.resume) return;
  moves_.push_back({.kind = StateMove::Kind::kDrop, .snapshot = s.request.resume->snapshot, .id = s.request.id});
  s.request.resume.reset();
}

// Goes on where an earlier turn ended. False when there is not enough room yet.
std::optional<bool> Scheduler::start_from_record(Sequence& s, int64_t now_ns) {
  const ResumePoint from = *s.request.resume;
  CHECK(from.position < s.num_prompt_tokens());
  const int64_t num_full = from.position / kBlockTokens;
  PrefixHit hit =
      cache_.lookup(std::span(s.keys.keys()).first(static_cast<size_t>(num_full)), s.num_prompt_tokens(), true);
  loads_.insert(loads_.end(), hit.loads.begin(), hit.loads.end());
  const bool is_whole = hit.num_tokens() == num_full * kBlockTokens && s.request.replay == ReplayMode::kExact;
  const bool awaits_loads = hit.awaits_loads;
  s.record.num_loaded_blocks += static_cast<int64_t>(hit.loads.size());
  s.blocks = BlockTable(std::move(hit.blocks));
  s.blocks.reserve(BlockTable::blocks_for(s.num_tokens_expected()));
  if (!is_whole || !reserve(s, from.position + 1, false)) {
    release_blocks(s);
    if (is_whole && !(running_.empty() && num_steps_ == 0)) return false;  // somebody will make room
    drop_record(s);
    return std::nullopt;
  }
  s.num_computed_tokens = from.position;
  s.num_published_blocks = num_full;
  s.limits = {};
  s.behind_fast_replay = false;
  s.first_hit_tokens = num_full * kBlockTokens;
  take_lane(s, SequenceState::kPrefill);
  s.starts_lane = false;
  s.awaits_loads = awaits_loads;
  s.record.admitted_ns = now_ns;
  s.record.num_cached_tokens = s.record.num_resumed_tokens = from.position;
  move_lane(StateMove::Kind::kRestore, from.snapshot, s, from.position,
            {num_full, BlockTable::blocks_for(from.position)});
  drop_record(s);
  return true;
}

// ---- One prompt for several choices ----

void Scheduler::await_prompt(Sequence& choice) {
  if (!choice.request.prompt_of) return;
  const auto first = sequences_.find(*choice.request.prompt_of);
  if (first == sequences_.end()) return;
  Sequence& s = *first->second;
  if (s.request.prompt.size() != choice.request.prompt.size() || s.num_output_tokens() > 0) {
    if (!forks_.contains(s.request.id)) return;  // the prompt is over: the prefix cache may still have it
    forks_.at(s.request.id).choices.push_back(choice.request.id);
  } else {
    s.waiting_choices.push_back(choice.request.id);
  }
  choice.awaited = s.request.id;
}

bool Scheduler::awaits_prompt(const Sequence& s) const { return s.awaited && !forks_.contains(*s.awaited); }

// The first choice stands behind its prompt, its first token not yet appended.
void Scheduler::fork_prompt(Sequence& s) {
  if (s.waiting_choices.empty()) return;
  PromptFork fork;
  fork.snapshot = static_cast<SnapshotId>(next_snapshot_++);
  fork.num_tokens = s.num_prompt_tokens();
  fork.limits = s.limits;
  // Its rows below the prompt's end are in the blocks already: the last one runs again only for its logits.
  fork.limits.global_kv_begin = std::max(s.limits.global_kv_begin, fork.num_tokens);
  fork.behind_fast_replay = s.behind_fast_replay;
  fork.first_hit_tokens = s.first_hit_tokens;
  fork.num_cached_tokens = s.record.num_cached_tokens;
  fork.choices = std::exchange(s.waiting_choices, {});
  const int64_t num_full = fork.num_tokens / kBlockTokens;
  const auto& blocks = s.blocks.blocks();
  fork.blocks.assign(blocks.begin(), blocks.begin() + num_full);
  for (const BlockId block : fork.blocks) cache_.pool().hold(block);
  move_lane(StateMove::Kind::kSave, fork.snapshot, s, fork.num_tokens - 1,
            {num_full, BlockTable::blocks_for(fork.num_tokens)});
  forks_.emplace(s.request.id, std::move(fork));
}

// A choice starts from the state behind the shared prompt. False when there is not enough room yet.
bool Scheduler::start_from_fork(Sequence& s, int64_t now_ns) {
  PromptFork& fork = forks_.at(*s.awaited);
  for (const BlockId block : fork.blocks) {
    cache_.pool().hold(block);
    s.blocks.push_back(block);
  }
  if (!reserve(s, fork.num_tokens, false)) {
    release_blocks(s);
    if (running_.empty() && num_steps_ == 0)
      drop_fork(*s.awaited);  // nobody will make room: it computes the prompt itself
    return false;
  }
  s.num_computed_tokens = fork.num_tokens - 1;
  s.num_published_blocks = static_cast<int64_t>(fork.blocks.size());
  s.record.num_blocks_max = std::max(s.record.num_blocks_max, s.blocks.num_blocks());
  s.limits = fork.limits;
  s.behind_fast_replay = fork.behind_fast_replay;
  s.first_hit_tokens = fork.first_hit_tokens;
  take_lane(s, SequenceState::kDecode);
  s.record.admitted_ns = now_ns;
  s.record.num_cached_tokens = fork.num_cached_tokens;
  s.record.num_shared_tokens = fork.num_tokens;
  move_lane(StateMove::Kind::kRestore, fork.snapshot, s, s.num_computed_tokens,
            {static_cast<int64_t>(fork.blocks.size()), s.blocks.num_blocks()});
  leave_fork(s);
  return true;
}

void Scheduler::leave_fork(Sequence& s) {
  const SequenceId first = *std::exchange(s.awaited, std::nullopt);
  if (const auto at = forks_.find(first); at != forks_.end()) {
    std::erase(at->second.choices, s.request.id);
    if (at->second.choices.empty()) drop_fork(first);
  } else if (const auto running = sequences_.find(first); running != sequences_.end()) {
    std::erase(running->second->waiting_choices, s.request.id);
  }
}

void Scheduler::drop_fork(SequenceId first) {
  const auto at = forks_.find(first);
  for (const SequenceId id : at->second.choices) sequences_.at(id)->awaited.reset();
  for (const BlockId block : at->second.blocks) cache_.pool().release(block);
  moves_.push_back({.kind = StateMove::Kind::kDrop, .snapshot = at->second.snapshot, .id = first});
  forks_.erase(at);
}

// When nothing else gives room: the choices of one request compute their prompt themselves.
bool Scheduler::drop_any_fork() {
  if (forks_.empty()) return false;
  SequenceId oldest = forks_.begin()->first;
  for (const auto& [id, fork] : forks_) oldest = std::min(oldest, id);
  drop_fork(oldest);
  return true;
}

// The first choice ends before its prompt does: the next one computes it for the others.
void Scheduler::hand_prompt_on(Sequence& s) {
  std::vector<SequenceId> choices = std::exchange(s.waiting_choices, {});
  if (choices.empty()) return;
  Sequence& next = *sequences_.at(choices.front());
  choices.erase(choices.begin());
  next.awaited.reset();
  for (const SequenceId id : choices) sequences_.at(id)->awaited = next.request.id;
  next.waiting_choices = std::move(choices);
}

}  // namespace deepinfer
