// SPDX-License-Identifier: MIT
#include "serve/step_loop.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/check.h"

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
  return options;
}

}  // namespace

StepLoop::StepLoop(Engine& engine, const StepLoopOptions& options, const Clock& clock)
    : engine_(engine),
      clock_(clock),
      options_(options),
      cache_(engine.options().blocks_max, options.num_host_blocks),
      scheduler_(fitted(options.scheduler, engine), cache_) {}

StepLoop::~StepLoop() { stop(); }

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
  for (Arrival& arrival : arrivals) {
    SequenceRequest sequence = arrival.request.sequence;
    if (const Status taken = scheduler_.submit(std::move(sequence), clock_.monotonic_ns()); !taken.ok()) {
      arrival.on_update({.id = arrival.id, .tokens = {}, .logprobs = {}, .finished = {}, .refused = taken});
      continue;
    }
    Live& live = live_[index(arrival.id)];
    live.request = std::move(arrival.request);
    live.on_update = std::move(arrival.on_update);
    if (live.request.masks)
      live.masks.emplace(std::move(live.request.masks), engine_.config().vocab_size, scheduler_.num_drafts());
  }
  for (const SequenceId id : cancels) scheduler_.cancel(id);
}

Status StepLoop::admit_lanes() {
  for (const BatchSequence& rows : batch_.sequences) {
    if (!rows.starts_lane) continue;
    const Live& live = live_.at(index(rows.id));
    LaneStart start{.lane = rows.lane,
                    .params = live.request.sampling,
                    .prompt = {},
                    .output = live.output,
                    .images = live.request.images};
    if (needs_history(start.params)) start.prompt = live.request.sequence.prompt;
    TRY(engine_.admit(std::move(start)));
  }
  return {};
}

const StepMasks* StepLoop::fill_masks() {
  step_masks_.assign(batch_.sequences.size(), nullptr);
  bool has_any = false;
  for (size_t i = 0; i < batch_.sequences.size(); ++i) {
    const BatchSequence& rows = batch_.sequences[i];
    if (rows.num_logits_rows == 0 || !rows.sample) continue;
    std::optional<SequenceMasks>& masks = live_.at(index(rows.id)).masks;
    if (!masks) continue;
    const auto drafts = std::span(batch_.tokens).first(static_cast<size_t>(rows.rows.end));
    masks->fill(drafts.last(static_cast<size_t>(rows.num_logits_rows - 1)));
    step_masks_[i] = &masks->rows();
    has_any = true;
  }
  return has_any ? &step_masks_ : nullptr;
}

void StepLoop::cut_refused_drafts() {
  for (const SequenceDelta& delta : deltas_) {
    const auto at = live_.find(index(delta.id));
    if (at == live_.end() || !at->second.masks) continue;
    const Sequence* sequence = scheduler_.find(delta.id);
    CHECK(sequence);
    scheduler_.cut_drafts(delta.id, at->second.masks->fill(sequence->drafts));
  }
}

Result<StepOutput> StepLoop::run_engine() {
  TRY(admit_lanes());
  TRY(engine_.launch(batch_));
  TRY(engine_.sample(fill_masks()));
  return engine_.collect();
}

Result<bool> StepLoop::run_step() {
  take_inbox();
  scheduler_.plan(clock_.monotonic_ns(), batch_);
  // The CPU engine keeps blocks in place; a host tier's copies are done by the engine before the step.
  for (const BlockCopy& copy : scheduler_.take_copies()) cache_.finish_copy(copy);
  deliver(scheduler_.take_finished());
  if (batch_.empty()) {
    update_gauges();  // sequences may have ended without a step
    return false;
  }
  const int64_t begin_ns = clock_.monotonic_ns();
  ASSIGN_OR_RETURN(const StepOutput output, run_engine());
  const int64_t end_ns = clock_.monotonic_ns();
  scheduler_.add_step_time(end_ns - begin_ns);
  scheduler_.commit(output, end_ns, deltas_);
  if (options_.checks_invariants) scheduler_.check_invariants();
  deliver(deltas_);
  cut_refused_drafts();
  {
    const std::lock_guard lock(mutex_);
    snapshot_.busy_ns += end_ns - begin_ns;
    snapshot_.last_step_ns = end_ns - begin_ns;
  }
  update_snapshot(output);
  update_gauges();
  return true;
}

Status StepLoop::cause_of(const Live& live, const SequenceDelta& delta) const {
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
    if (live.masks) live.masks->accept(delta.tokens);
    std::optional<SequenceRecord> record;
    if (delta.finished) record = scheduler_.take_record(delta.id);
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
    if (delta.finished) live_.erase(at);
  }
}

void StepLoop::update_snapshot(const StepOutput& output) {
  const std::lock_guard lock(mutex_);
  StepLoopSnapshot& s = snapshot_;
  ++s.num_steps;
  for (size_t i = 0; i < batch_.sequences.size(); ++i) {
    const BatchSequence& rows = batch_.sequences[i];
    const bool decodes = rows.num_logits_rows == rows.rows.size();
    (decodes ? s.num_decode_rows : s.num_prompt_rows) += rows.rows.size();
    if (decodes) s.num_verified_drafts += rows.num_logits_rows - 1;
    s.num_accepted_drafts += output.sequences[i].num_accepted;
    s.num_output_tokens += static_cast<int64_t>(output.sequences[i].tokens.size());
  }
  s.last_predicted_ns = scheduler_.predicted_step_ns();
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
}

Status StepLoop::run_until_idle() {
  for (;;) {
    ASSIGN_OR_RETURN(const bool ran, run_step());
    if (!ran && scheduler_.is_idle()) return {};
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
      wake_.wait_for(lock, std::chrono::milliseconds(scheduler_.is_idle() ? 1000 : 1),
                     [this] { return stopping_ || !inbox_.empty() || !cancels_.empty(); });
    }
  }
  const Status reason = failure();
  take_inbox();
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
