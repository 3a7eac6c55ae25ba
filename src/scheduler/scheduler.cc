// SPDX-License-Identifier: MIT
// Queueing, admission, preemption and the end of sequences. The rows of a step are planned in scheduler_plan.cc and
// committed in scheduler_commit.cc.
#include "scheduler/scheduler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace deepinfer {

Scheduler::Scheduler(const SchedulerOptions& options, PrefixCache& cache)
    : options_(options),
      cache_(cache),
      policy_(find_admission_policy(options.admission)),
      fit_(options.profile),
      calibration_(options.num_drafts) {
  CHECK(policy_ != nullptr);
  running_.reserve(static_cast<size_t>(options.num_lanes));
  decoding_.reserve(static_cast<size_t>(options.num_lanes));
  ended_.reserve(static_cast<size_t>(options.num_lanes));
  CHECK(options.num_lanes > 0 && options.rows_max >= options.num_lanes * (1 + options.num_drafts) &&
        options.chunk_rows_min > 0);
  for (int64_t lane = options.num_lanes; lane-- > 0;) free_lanes_.push_back(static_cast<int32_t>(lane));
}

Status Scheduler::submit(SequenceRequest request, int64_t now_ns) {
  now_ns_ = now_ns;
  const int64_t num_prompt = static_cast<int64_t>(request.prompt.size());
  if (num_prompt == 0) return invalid_argument("request: the prompt is empty; at least one token is needed");
  if (request.max_output_tokens < 1) return invalid_argument("request: max_tokens is below 1");
  if (sequences_.contains(request.id)) return invalid_argument("request: the sequence id is in use");
  const int64_t longest = num_prompt + request.max_output_tokens;
  if (longest > options_.context_tokens_max)
    return invalid_argument(fmt::format("request: {} prompt and {} output tokens exceed the context of {}", num_prompt,
                                        request.max_output_tokens, options_.context_tokens_max));
  if (BlockTable::blocks_for(longest + options_.num_drafts) > cache_.pool().num_blocks())
    return invalid_argument(fmt::format("request: {} tokens need {} KV blocks, the pool has {}", longest,
                                        BlockTable::blocks_for(longest + options_.num_drafts),
                                        cache_.pool().num_blocks()));
  if (num_waiting() >= options_.queue_max)
    return resource_exhausted(fmt::format("busy: {} requests are waiting already", num_waiting()));
  const KeyScope scope{request.tenant_salt, options_.model_revision, options_.cache_format};
  auto sequence = std::make_unique<Sequence>(std::move(request), scope);
  sequence->reserve();
  sequence->keys.adopt(std::exchange(sequence->request.keys, {}));
  sequence->keys.extend(sequence->tokens, sequence->request.media);
  sequence->record.arrival_ns = now_ns;
  if (const auto limit = sequence->request.ttft_ns_max) {
    const int64_t hit =
        sequence->request.use_prefix_cache
            ? cache_.probe_tokens(sequence->keys.keys(), num_prompt, sequence->request.replay == ReplayMode::kExact)
            : 0;
    const int64_t decoder_begin =
        plan_replay(options_.replay, sequence->request.replay, 0, num_prompt).limits.decoder_begin;
    const double predicted = predict_ttft_ns({num_prompt - hit, hit, decoder_begin});
    if (predicted > static_cast<double>(*limit))
      return resource_exhausted(
          fmt::format("busy: the first token would take {:.0f} ms, at most {:.0f} ms were asked for", predicted / 1e6,
                      static_cast<double>(*limit) / 1e6));
  }
  if (const auto deadline = sequence->request.deadline_ns)
    next_deadline_ns_ = std::min(next_deadline_ns_.value_or(*deadline), *deadline);
  await_prompt(*sequence);
  waiting_.push_back(sequence.get());
  sequences_.emplace(sequence->request.id, std::move(sequence));
  return {};
}

void Scheduler::cancel(SequenceId id) {
  const auto at = sequences_.find(id);
  if (at == sequences_.end()) return;
  Sequence& s = *at->second;
  finish(s, SequenceEnd::kCancelled, now_ns_);
  finished_.push_back({.id = id, .finished = SequenceEnd::kCancelled});
}

void Scheduler::cut_drafts(SequenceId id, int64_t num_drafts) {
  const auto at = sequences_.find(id);
  if (at == sequences_.end()) return;
  Sequence& s = *at->second;
  if (s.num_steps_under_way > 0) return;
  const size_t num = std::min(s.drafts.size(), static_cast<size_t>(std::max<int64_t>(num_drafts, 0)));
  s.drafts.resize(num);
  s.confidences.resize(num);
}

void Scheduler::foretell_drafts(SequenceId id, std::span<const TokenId> drafts) {
  const auto at = sequences_.find(id);
  if (at == sequences_.end() || at->second->num_steps_under_way > 0) return;
  Sequence& s = *at->second;
  drafts = drafts.first(std::min(drafts.size(), static_cast<size_t>(options_.num_drafts)));
  s.drafts.assign(drafts.begin(), drafts.end());
  s.confidences.assign(drafts.size(), kForetoldConfidence);
  s.record.num_drafted += static_cast<int64_t>(drafts.size());
}

void Scheduler::foretell(SequenceId id, int64_t num_drafts) {
  if (const auto at = sequences_.find(id); at != sequences_.end()) at->second->num_foretold = num_drafts;
}

void Scheduler::hold(SequenceId id, bool is_held) {
  if (const auto at = sequences_.find(id); at != sequences_.end()) at->second->is_held = is_held;
}

const Sequence* Scheduler::find(SequenceId id) const {
  const auto at = sequences_.find(id);
  return at == sequences_.end() ? nullptr : at->second.get();
}

std::vector<SequenceDelta> Scheduler::take_finished() { return std::exchange(finished_, {}); }

std::optional<SequenceRecord> Scheduler::take_record(SequenceId id) {
  const auto at = records_.find(id);
  if (at == records_.end()) return std::nullopt;
  SequenceRecord record = std::move(at->second);
  records_.erase(at);
  return record;
}

void Scheduler::expire(int64_t now_ns) {
  if (!next_deadline_ns_ || *next_deadline_ns_ > now_ns) return;
  next_deadline_ns_.reset();
  std::vector<SequenceId> late;
  for (const auto& [id, sequence] : sequences_) {
    const auto deadline = sequence->request.deadline_ns;
    if (!deadline) continue;
    if (*deadline <= now_ns) late.push_back(id);
    else next_deadline_ns_ = std::min(next_deadline_ns_.value_or(*deadline), *deadline);
  }
  std::sort(late.begin(), late.end());
  for (const SequenceId id : late) {
    finish(*sequences_.at(id), SequenceEnd::kDeadline, now_ns);
    finished_.push_back({.id = id, .finished = SequenceEnd::kDeadline});
  }
}

// What of its prompt is not computed yet, as one chunk.
ChunkShape Scheduler::remaining(const Sequence& s) const {
  const RowLimits limits =
      s.lane >= 0 ? s.limits : plan_replay(options_.replay, s.request.replay, 0, s.num_prompt_tokens()).limits;
  return {s.num_unscheduled_tokens(), s.num_computed_tokens, limits.decoder_begin};
}

double Scheduler::predict_ttft_ns(const ChunkShape& uncached) const {
  double work = prompt_ns(uncached);
  for (const auto& [id, sequence] : sequences_)
    if (!sequence->decodes_next() && !sequence->awaited) work += remaining_ns(*sequence);
  // Decode rows share every step; the share of a step left to prompts is bounded below by chunk_rows_min.
  StepShape decode;
  for (const Sequence* s : running_) {
    decode.num_decode_rows += s->decodes_next() ? 1 + options_.num_drafts : 0;
    decode.num_sequences += s->decodes_next();
    decode.num_drafting += s->decodes_next() && drafts(*s);
  }
  const double overhead = static_cast<double>(fit_.curve().predict_ns(decode));
  const double budget = static_cast<double>(options_.step_budget_ns);
  const double share = std::max(budget - overhead, fit_.curve().chunk_ns({options_.chunk_rows_min, 0}));
  return work + overhead * std::max(1.0, work / std::max(share, 1.0)) + lane_wait_ns(overhead);
}

// Until a lane is free for one more: as many as wait before it must end first. How long a running sequence goes on is a
// guess from those that ended lately; one that is past their mean is thought to need a quarter of it.
double Scheduler::lane_wait_ns(double step_ns) const {
  const int64_t num_to_end = num_waiting() + 1 - static_cast<int64_t>(free_lanes_.size());
  if (num_to_end <= 0 || running_.empty()) return 0;
  std::vector<double> left;
  for (const Sequence* s : running_) {
    const double num_output = static_cast<double>(s->num_output_tokens());
    const double most = static_cast<double>(s->request.max_output_tokens) - num_output;
    left.push_back(std::min(most, std::max(mean_output_tokens_ - num_output, mean_output_tokens_ / 4)));
  }
  std::sort(left.begin(), left.end());
  const int64_t num_running = this->num_running();
  const double rounds = static_cast<double>((num_to_end - 1) / num_running);
  const double tokens = rounds * mean_output_tokens_ + left[static_cast<size_t>((num_to_end - 1) % num_running)];
  return tokens / mean_run_tokens_ * step_ns;
}

Sequence* Scheduler::next_waiting(int64_t now_ns) {
  Sequence* best = nullptr;
  std::pair<int64_t, double> best_rank;
  for (Sequence* candidate : waiting_) {
    if (awaits_prompt(*candidate)) continue;
    const int64_t arrival_ns = candidate->record.arrival_ns;
    const std::pair rank(priority_level(candidate->request.priority, now_ns - arrival_ns, options_.priority_wait_ns),
                         policy_->score({arrival_ns, remaining_ns(*candidate), now_ns}, options_.aging));
    if (best && rank >= best_rank) continue;
    best = candidate;
    best_rank = rank;
  }
  return best;
}

// Behind the stored tail that saves most, else by replay. A sequence that starts again under fast replay must see what
// it saw the first time: no tail where it had none, and the whole prompt anew where its tail is gone.
ReplayPlan Scheduler::choose_start(Sequence& s, const PrefixHit& hit) {
  const ReplayMode mode = s.request.replay;
  const int64_t num_hit = hit.num_tokens(), num_prompt = s.num_prompt_tokens();
  const bool repeats = s.first_hit_tokens.has_value() && mode == ReplayMode::kFast;
  const bool had_tail = s.record.num_tail_tokens > 0;
  ReplayPlan plan = plan_replay(options_.replay, mode, num_hit, num_prompt);
  const TailRange range = useful_tails(options_.replay, mode, num_hit, num_prompt);
  s.tail.reset();
  if (!range.empty() && (had_tail || !repeats)) {
    const auto found = cache_.tails().find(s.keys.keys(), range.worse / kBlockTokens, range.best / kBlockTokens,
                                           mode == ReplayMode::kExact);
    if (found) {
      s.tail = found->tail.bytes;
      s.behind_fast_replay = hit.behind_fast_replay || found->tail.behind_fast_replay;
      return plan_from_tail(options_.replay, mode, num_hit, num_prompt, found->num_blocks * kBlockTokens);
    }
  }
  if (repeats && had_tail) plan = plan_replay(options_.replay, mode, 0, num_prompt);
  s.behind_fast_replay = plan.adopts_hit && (mode == ReplayMode::kFast || hit.behind_fast_replay);
  return plan;
}

// Takes a lane and the prefix hit. False when it must keep waiting.
bool Scheduler::admit(Sequence& s, int64_t now_ns) {
  if (free_lanes_.empty()) return false;
  CHECK(s.state == SequenceState::kWaiting && s.blocks.num_blocks() == 0);
  if (s.snapshot) return resume_from_snapshot(s);
  if (s.awaited) return start_from_fork(s, now_ns);
  if (s.request.resume) {
    if (const auto started = start_from_record(s, now_ns)) return *started;
  }
  const bool exact = s.request.replay == ReplayMode::kExact;
  const bool resumed = s.first_hit_tokens.has_value();
  int64_t num_keys = static_cast<int64_t>(s.keys.keys().size());
  if (resumed && s.request.replay == ReplayMode::kFast)
    num_keys = std::min(num_keys, *s.first_hit_tokens / kBlockTokens);
  if (!s.request.use_prefix_cache || s.request.replay == ReplayMode::kOff) num_keys = 0;
  PrefixHit hit =
      cache_.lookup(std::span(s.keys.keys()).first(static_cast<size_t>(num_keys)), s.num_prompt_tokens(), exact);
  const ReplayPlan plan = choose_start(s, hit);
  if (hit.num_tokens() > 0 && !plan.adopts_hit) {
    for (size_t i = hit.blocks.size(); i-- > 0;) cache_.pool().release(hit.blocks[i]);
    hit.blocks.clear();
  }
  loads_.insert(loads_.end(), hit.loads.begin(),
                hit.loads.end());  // a load that was begun is finished even if not adopted
  s.blocks = BlockTable(std::move(hit.blocks));
  s.blocks.reserve(BlockTable::blocks_for(s.num_tokens_expected()));
  s.num_published_blocks = s.blocks.num_blocks();
  s.num_computed_tokens = plan.run_begin;
  s.limits = plan.limits;
  take_lane(s, SequenceState::kPrefill);
  s.starts_lane = true;
  s.awaits_loads = plan.adopts_hit && hit.awaits_loads;
  s.record.num_loaded_blocks += static_cast<int64_t>(hit.loads.size());
  if (!resumed) {
    s.first_hit_tokens = s.blocks.num_blocks() * kBlockTokens;
    s.record.admitted_ns = now_ns;
    s.record.num_cached_tokens = *s.first_hit_tokens;
    s.record.num_replayed_tokens = plan.adopts_hit ? *s.first_hit_tokens - plan.run_begin : 0;
    s.record.num_tail_tokens = s.tail ? plan.run_begin : 0;
    s.record.miss_reason = num_keys == 0 && !s.keys.keys().empty() ? MissReason::kDisabled : hit.reason;
    s.record.replay_reason = plan.reason;
  }
  return true;
}

// Blocks for `num_tokens` positions in all. Without enough, preempts others (never `s` itself) when allowed.
bool Scheduler::reserve(Sequence& s, int64_t num_tokens, bool may_preempt) {
  const int64_t missing = BlockTable::blocks_for(num_tokens) - s.blocks.num_blocks();
  if (missing <= 0) return true;
  while (cache_.pool().num_available() < missing) {
    Sequence* victim = may_preempt ? preemption_victim(s) : nullptr;
    if (victim) preempt(*victim);
    else if (!may_preempt || wants_drain_ || !drop_any_fork()) return false;
  }
  fresh_blocks_.clear();
  CHECK(cache_.pool().allocate(missing, fresh_blocks_));
  for (const BlockId block : fresh_blocks_) s.blocks.push_back(block);
  s.record.num_blocks_max = std::max(s.record.num_blocks_max, s.blocks.num_blocks());
  return true;
}

// The running sequence of the lowest priority, then with the least output, then the youngest; not one whose rows are in
// the batch being planned. When its rows are in a step under way, nothing is taken from anyone before that step is
// committed: whom it hits must not depend on how far the pipeline is.
Sequence* Scheduler::preemption_victim(const Sequence& keep) {
  Sequence* victim = nullptr;
  for (Sequence* running : running_) {
    Sequence& candidate = *running;
    if (&candidate == &keep || candidate.last_step > step_ || candidate.blocks.num_blocks() == 0) continue;
    const auto rank = [](const Sequence& x) { return std::pair(-x.request.priority, x.num_output_tokens()); };
    if (!victim || rank(candidate) <= rank(*victim)) victim = &candidate;
  }
  if (victim && victim->num_steps_under_way > 0) {
    wants_drain_ = true;
    return nullptr;
  }
  return victim;
}

void Scheduler::preempt(Sequence& s) {
  CHECK(s.num_steps_under_way == 0 && s.num_scheduled_tokens == 0);
  save_state(s);
  release_blocks(s);
  free_lanes_.push_back(s.lane);
  s.lane = -1;
  s.state = SequenceState::kWaiting;
  s.num_computed_tokens = 0;
  s.num_published_blocks = 0;
  s.drafts.clear();
  s.confidences.clear();
  ++s.record.num_preemptions;
  std::erase(running_, &s);
  waiting_.insert(waiting_.begin(), &s);
}

void Scheduler::release_blocks(Sequence& s) {
  for (int64_t i = s.blocks.num_blocks(); i-- > 0;) cache_.pool().release(s.blocks.blocks()[static_cast<size_t>(i)]);
  s.blocks.clear();
}

void Scheduler::finish(Sequence& s, SequenceEnd reason, int64_t now_ns) {
  CHECK(s.state != SequenceState::kFinished);
  if (reason == SequenceEnd::kStop || reason == SequenceEnd::kLength) hand_over(s);
  drop_snapshot(s);
  drop_record(s);
  hand_prompt_on(s);
  if (s.awaited) leave_fork(s);
  s.state = SequenceState::kFinished;
  s.end = reason;
  if (reason == SequenceEnd::kStop || reason == SequenceEnd::kLength)
    mean_output_tokens_ += 0.05 * (static_cast<double>(s.num_output_tokens()) - mean_output_tokens_);
  s.record.finished_ns = now_ns;
  if (s.record.num_blocks_max > 0) s.record.num_kv_bytes = state_bytes(s.record.num_blocks_max);
  std::erase(running_, &s);
  std::erase(waiting_, &s);
  SequenceRecord& record = records_[s.request.id];
  record = s.record;
  record.block_keys = s.keys.take_keys();
  const auto at = sequences_.find(s.request.id);
  ended_.push_back(std::move(at->second));
  sequences_.erase(at);
  if (s.num_steps_under_way == 0) retire(s);
}

void Scheduler::retire(Sequence& s) {
  CHECK(s.state == SequenceState::kFinished && s.num_steps_under_way == 0);
  release_blocks(s);
  if (s.lane >= 0) free_lanes_.push_back(s.lane);
  std::erase_if(ended_, [&](const std::unique_ptr<Sequence>& sequence) { return sequence.get() == &s; });
}

std::vector<BlockCopy> Scheduler::take_copies() {
  std::vector<BlockCopy> copies = cache_.take_offloads();
  copies.insert(copies.end(), loads_.begin(), loads_.end());
  loads_.clear();
  return copies;
}

void Scheduler::add_step_time(int64_t measured_ns) { fit_.add(committed_.shape, measured_ns); }

void Scheduler::check_invariants() const {
  cache_.check_invariants();
  std::vector<int64_t> references(static_cast<size_t>(cache_.pool().num_blocks()), 0);
  std::vector<bool> lane_used(static_cast<size_t>(options_.num_lanes), false);
  std::unordered_map<const Sequence*, int32_t> under_way;
  for (int64_t i = 0; i < num_steps_; ++i)
    for (const Planned& planned : steps_[static_cast<size_t>((first_step_ + i) % kStepsMax)].sequences)
      ++under_way[planned.sequence];
  const auto check = [&](const Sequence& s) {
    const auto at = under_way.find(&s);
    CHECK(s.num_steps_under_way == (at == under_way.end() ? 0 : at->second));
    if (s.lane >= 0) {
      CHECK(!lane_used[static_cast<size_t>(s.lane)]);
      lane_used[static_cast<size_t>(s.lane)] = true;
      CHECK(s.num_computed_tokens <= s.blocks.capacity_tokens());
    } else {
      CHECK(s.blocks.num_blocks() == 0 && s.num_steps_under_way == 0);
    }
    for (const BlockId block : s.blocks.blocks()) ++references[index(block)];
  };
  for (const auto& [id, s] : sequences_) {
    CHECK(s->state != SequenceState::kFinished);
    CHECK((s->state == SequenceState::kWaiting) == (s->lane < 0));
    check(*s);
  }
  for (const auto& s : ended_) {  // only what a step under way still needs
    CHECK(s->state == SequenceState::kFinished && s->num_steps_under_way > 0);
    check(*s);
  }
  int64_t snapshot_bytes = 0;
  for (const auto& [id, s] : sequences_) {
    CHECK(!s->snapshot || s->state == SequenceState::kWaiting);
    snapshot_bytes += s->snapshot ? s->snapshot->num_bytes : 0;
  }
  CHECK(snapshot_bytes == snapshot_bytes_ && snapshot_bytes_ <= std::max<int64_t>(0, options_.snapshots.bytes_max));
  for (const auto& [id, fork] : forks_) {
    CHECK(!fork.choices.empty());
    for (const SequenceId choice : fork.choices) CHECK(sequences_.at(choice)->awaited == id);
    for (const BlockId block : fork.blocks) ++references[index(block)];
  }
  for (int64_t i = 0; i < cache_.pool().num_blocks(); ++i)
    CHECK(cache_.pool().num_references(static_cast<BlockId>(i)) == references[static_cast<size_t>(i)]);
  CHECK(static_cast<int64_t>(running_.size() + free_lanes_.size() + ended_.size()) == options_.num_lanes);
  CHECK(running_.size() + waiting_.size() == sequences_.size());
}

}  // namespace deepinfer
