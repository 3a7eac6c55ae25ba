// SPDX-License-Identifier: MIT
#include "serve/step_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"
#include "base/log.h"

namespace deepinfer {
namespace {

// What the engine fixes is not the caller's to choose.
SchedulerOptions fitted(SchedulerOptions options, const Engine& engine) {
  const EngineOptions& limits = engine.options();
  options.num_lanes = std::min(options.num_lanes, limits.lanes_max);
  options.rows_max = std::min(options.rows_max, limits.rows_max);
  options.num_drafts =
      std::min<int64_t>(options.num_drafts, std::max<int64_t>(0, limits.rows_max / options.num_lanes - 1));
  options.replay = engine.replay_geometry();
  options.snapshots.record_bytes = engine.lane_record_bytes(LaneRecordKind::kFull);
  options.snapshots.block_bytes = engine.cache_layout().block_bytes;
  return options;
}

// False of a step whose sequences had all ended before it began. Its time says nothing about steps.
bool ran_rows(const StepOutput& output) {
  return std::ranges::any_of(output.sequences, [](const SequenceOutput& s) { return s.num_rows > 0; });
}

}  // namespace

StepLoop::StepLoop(Engine& engine, const StepLoopOptions& options, const Clock& clock)
    : engine_(engine),
      clock_(clock),
      options_(options),
      cache_(engine.options().blocks_max, options.num_host_blocks, options.tail_bytes_max),
      scheduler_(fitted(options.scheduler, engine), cache_),
      mover_(engine, options.num_host_blocks),
      snapshots_(engine, options.scheduler.model_revision) {
  if (options_.store) cache_.record_published();
}

StepLoop::~StepLoop() {
  stop();
  end_flights();
}

Result<SequenceId> StepLoop::submit(LoopRequest request, OnLoopUpdate on_update) {
  SequenceId id{};
  {
    const std::lock_guard lock(mutex_);
    if (stopping_ || !failure_.ok()) return unavailable(failure_.ok() ? "the service is stopping" : failure_.message());
    if (static_cast<int64_t>(inbox_.size()) >= options_.inbox_max)
      return resource_exhausted("busy: too many requests arrived at once");
    id = static_cast<SequenceId>(next_id_++);
    request.sequence.id = id;
    inbox_.push_back({id, std::move(request), std::move(on_update)});
  }
  wake_.notify_one();
  return id;
}

void StepLoop::cancel(SequenceId id) {
  {
    const std::lock_guard lock(mutex_);
    cancels_.push_back(id);
  }
  wake_.notify_one();
}

void StepLoop::take_inbox() {
  std::vector<Arrival> arrivals;
  std::vector<SequenceId> cancels;
  {
    const std::lock_guard lock(mutex_);
    arrivals.swap(inbox_);
    cancels.swap(cancels_);
  }
  for (Arrival& arrival : arrivals)
    if (!fetch_first(arrival)) accept(std::move(arrival));
  for (const SequenceId id : cancels)
    if (!cancel_fetch(id)) scheduler_.cancel(id);
}

void StepLoop::accept(Arrival arrival) {
  std::vector<BlockKey> keys = std::exchange(arrival.request.sequence.keys, {});
  SequenceRequest sequence = arrival.request.sequence;
  sequence.keys = std::move(keys);
  sequence.hands_over = options_.store && arrival.request.ttl_class == TtlClass::kAgent;
  if (options_.ttft_ns_max > 0 && !sequence.ttft_ns_max) sequence.ttft_ns_max = options_.ttft_ns_max;
  sequence.is_foretold = arrival.request.masks && options_.drafts_foretold;
  if (const Status taken = scheduler_.submit(std::move(sequence), clock_.monotonic_ns()); !taken.ok()) {
    if (arrival.request.sequence.resume) snapshots_.drop(arrival.request.sequence.resume->snapshot);
    arrival.on_update({.id = arrival.id, .tokens = {}, .logprobs = {}, .finished = {}, .refused = taken});
    return;
  }
  Live& live = live_[index(arrival.id)];
  live.request = std::move(arrival.request);
  live.on_update = std::move(arrival.on_update);
  if (live.request.masks) start_masks(live);
  note_root(live.request);
}

Status StepLoop::admit_lanes(const Batch& batch) {
  for (const BatchSequence& rows : batch.sequences) {
    if (!rows.starts_lane) continue;
    TRY(engine_.admit(lane_start(rows.id, rows.lane)));
  }
  return {};
}

Result<bool> StepLoop::launch_step() {
  Flight& next = flight(num_flights_);
  finish_copies();
  settle_masks();
  scheduler_.plan(clock_.monotonic_ns(), next.batch);
  TRY(move_state());
  if (!next.batch.empty()) {
    TRY(admit_lanes(next.batch));
    TRY(engine_.launch(next.batch));
    next.is_sampled = false;
    ++num_flights_;
    if (!waits_for_masks(next)) TRY(sample_newest());
  }
  deliver(scheduler_.take_finished());
  return !next.batch.empty();
}

Status StepLoop::sample_newest() {
  Flight& newest = flight(num_flights_ - 1);
  newest.is_sampled = true;
  return engine_.sample(fill_masks(newest));
}

int64_t StepLoop::step_ns(const StepOutput& output) const {
  return options_.measures_cpu_time ? output.cpu_ns : output.forward_ns + output.sample_ns;
}

Status StepLoop::collect_oldest() {
  TRY(engine_.collect(output_));
  flight(0).held.clear();
  first_flight_ = (first_flight_ + 1) % Scheduler::kStepsMax;
  --num_flights_;
  scheduler_.commit(output_, clock_.monotonic_ns(), deltas_);
  TRY(save_forks());
  TRY(save_published());
  if (ran_rows(output_)) scheduler_.add_step_time(step_ns(output_));
  if (options_.checks_invariants) scheduler_.check_invariants();
  advance_masks();
  if (num_flights_ > 0 && !flight(num_flights_ - 1).is_sampled) TRY(sample_newest());
  deliver(deltas_);
  warn_of_bad_drafts();
  update_snapshot(output_);
  return {};
}

void StepLoop::warn_of_bad_drafts() {
  if (scheduler_.num_draft_pauses() == 0 || std::exchange(has_warned_, true)) return;
  log_line(LogLevel::kWarning, "hardly any draft is accepted; drafting pauses and is tried again from time to time",
           {{"step", static_cast<int64_t>(output_.step)}});
}

Result<bool> StepLoop::run_step() {
  take_inbox();
  TRY(finish_fetches());
  ASSIGN_OR_RETURN(const bool launched, launch_step());
  const bool one_stays = options_.pipelined && launched && !scheduler_.wants_drain();
  const bool any = num_flights_ > 0;
  while (num_flights_ > (one_stays ? 1 : 0)) TRY(collect_oldest());
  update_gauges();                                           // sequences may have ended without a step
  if (!any && !scheduler_.is_idle()) mover_.wait_for_any();  // what is left may wait for a load
  return any;
}

// The engine reads masks until a step has been collected: none may be pulled away under it.
void StepLoop::end_flights() {
  if (num_flights_ > 0 && !flight(num_flights_ - 1).is_sampled) static_cast<void>(engine_.sample(nullptr));
  for (; num_flights_ > 0; --num_flights_) {
    if (!engine_.collect(output_).ok())  // it hangs, and may read them for ever
      static_cast<void>(new std::vector(std::move(flight(0).held)));
    first_flight_ = (first_flight_ + 1) % Scheduler::kStepsMax;
  }
}

Status StepLoop::cause_of(const Live& live, const SequenceDelta& delta) const {
  if (delta.finished == SequenceEnd::kFailed) return output_.failure;
  if (delta.finished == SequenceEnd::kNotFinite)
    return internal_error(fmt::format("a logit at output position {} is NaN or infinite", live.output.size()));
  if (delta.finished != SequenceEnd::kNothingAllowed) return {};
  if (live.masks && !live.masks->failure().ok()) return live.masks->failure();
  return invalid_argument(fmt::format("no token is allowed at output position {}", live.output.size()));
}

void StepLoop::deliver(const std::vector<SequenceDelta>& deltas) {
  for (const SequenceDelta& delta : deltas) {
    const auto at = live_.find(index(delta.id));
    CHECK(at != live_.end());
    Live& live = at->second;
    live.output.insert(live.output.end(), delta.tokens.begin(), delta.tokens.end());
    std::optional<SequenceRecord> record;
    if (delta.finished) record = scheduler_.take_record(delta.id);
    if (record) {
      record->num_store_tokens = live.request.num_store_tokens;
      record->store_wait_ns = live.request.store_wait_ns;
      record->store_reason = live.request.store_reason;
    }
    const Sequence* running = record ? nullptr : scheduler_.find(delta.id);
    const int64_t num_cached = record ? record->num_cached_tokens : running ? running->record.num_cached_tokens : 0;
    live.on_update({.id = delta.id,
                    .tokens = delta.tokens,
                    .logprobs = delta.logprobs,
                    .num_cached_tokens = num_cached,
                    .finished = delta.finished,
                    .refused = {},
                    .cause = cause_of(live, delta),
                    .record = record ? &*record : nullptr});
    if (!delta.finished) continue;
    if (record) save_tails(live, record->block_keys);
    if (record) pin_prompt(live, record->block_keys);
    live_.erase(at);
  }
}

void StepLoop::update_snapshot(const StepOutput& output) {
  const std::lock_guard lock(mutex_);
  StepLoopSnapshot& s = snapshot_;
  ++s.num_steps;
  s.num_decode_rows += scheduler_.committed_shape().num_decode_rows;
  for (const ChunkShape& chunk : scheduler_.committed_shape().chunks) s.num_prompt_rows += chunk.num_tokens;
  for (const SequenceOutput& sequence : output.sequences) {
    s.num_verified_drafts += sequence.num_verified;
    s.num_accepted_drafts += sequence.num_accepted;
    s.num_output_tokens += static_cast<int64_t>(sequence.tokens.size());
  }
  s.num_wasted_rows = scheduler_.num_wasted_rows();
  s.num_draft_pauses = scheduler_.num_draft_pauses();
  s.num_draft_rests = scheduler_.num_draft_rests();
  s.num_late_masks = num_late_masks_;
  if (ran_rows(output)) {
    s.last_step_ns = step_ns(output);
    s.last_predicted_ns = scheduler_.predicted_step_ns();
  }
  s.num_experts_read += output.experts_read;
  s.expert_bytes_read += output.expert_bytes_read;
  const bool is_on_device = output.device_busy_ns > 0;
  s.busy_ns += is_on_device ? output.device_busy_ns : output.forward_ns + output.sample_ns;
  s.trusts_curve = scheduler_.fit().is_trusted();
  s.idle_ns += is_on_device ? output.device_idle_ns : output.idle_ns;
  s.cpu_ns += output.cpu_ns;
}

void StepLoop::update_gauges() {
  const std::lock_guard lock(mutex_);
  StepLoopSnapshot& s = snapshot_;
  s.num_waiting = scheduler_.num_waiting();
  s.num_running = scheduler_.num_running();
  s.num_blocks = cache_.pool().num_blocks();
  s.num_free_blocks = cache_.pool().num_free();
  s.num_cached_blocks = cache_.pool().num_cached();
  s.cache = cache_.stats();
  s.tails = cache_.tails().stats();
  s.num_tails = cache_.tails().num_tails();
  s.tail_bytes = cache_.tails().num_bytes();
  const BlockMoverStats copies = mover_.stats();
  s.num_block_copies = copies.num_copies;
  s.num_copied_bytes = copies.num_bytes;
  s.copy_ns = copies.busy_ns;
  s.snapshot_bytes = snapshots_.num_bytes();
}

Result<bool> StepLoop::run_or_wait() {
  ASSIGN_OR_RETURN(const bool ran, run_step());
  if (ran) return true;
  if (scheduler_.is_idle() && fetching_.empty()) return false;
  if (!fetching_.empty()) options_.store->wait(10'000'000);
  else if (!unsettled_.empty()) mask_workers_->wait(1'000'000, [] { return false; });
  return true;
}

Status StepLoop::run_until_idle() {
  for (;;) {
    ASSIGN_OR_RETURN(const bool goes_on, run_or_wait());
    if (!goes_on) return {};
  }
}

void StepLoop::start() {
  CHECK(!thread_.joinable());
  thread_ = std::thread([this] { loop(); });
}

void StepLoop::loop() {
  for (;;) {
    const Result<bool> ran = run_step();
    std::unique_lock lock(mutex_);
    if (!ran.ok()) failure_ = ran.status();
    if (stopping_ || !failure_.ok()) break;
    if (!ran.value() && inbox_.empty() && cancels_.empty()) {
      // A deadline of a waiting sequence is the only thing that happens by itself: look again soon enough for it.
      wake_.wait_for(lock, std::chrono::milliseconds(scheduler_.is_idle() && fetching_.empty() ? 1000 : 1),
                     [this] { return stopping_ || !inbox_.empty() || !cancels_.empty(); });
    }
  }
  const Status reason = failure();
  end_flights();
  take_inbox();
  while (!fetching_.empty()) cancel_fetch(fetching_.begin()->second.arrival.id);
  for (auto& [id, live] : live_)
    live.on_update({.id = static_cast<SequenceId>(id),
                    .tokens = {},
                    .logprobs = {},
                    .finished = SequenceEnd::kCancelled,
                    .refused = reason});
  live_.clear();
}

void StepLoop::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

StepLoopSnapshot StepLoop::snapshot() const {
  const std::lock_guard lock(mutex_);
  return snapshot_;
}

Status StepLoop::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace deepinfer
