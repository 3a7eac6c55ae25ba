// SPDX-License-Identifier: MIT
#include "serve/free_tokens.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <utility>

namespace deepinfer {
namespace {

// The user's name stands behind the key's in the salt.
int client_of(const std::string& tenant_salt) {
  const size_t at = tenant_salt.find('\0');
  int client = 0;
  if (at != std::string::npos)
    std::from_chars(tenant_salt.data() + at + 1, tenant_salt.data() + tenant_salt.size(), client);
  return client;
}

}  // namespace

Result<SequenceId> FreeTokens::submit(LoopRequest request, OnLoopUpdate on_update) {
  const std::lock_guard lock(mutex_);
  if (stopping_) return unavailable("stopping");
  const auto id = static_cast<SequenceId>(next_id_++);
  const int client = client_of(request.sequence.tenant_salt);
  arrived_.emplace(id, Live{std::move(request), std::move(on_update), client});
  wake_.notify_one();
  return id;
}

void FreeTokens::cancel(SequenceId id) {
  const std::lock_guard lock(mutex_);
  cancelled_.push_back(id);
  wake_.notify_one();
}

void FreeTokens::set_pace(FreeTokensPace pace) {
  const std::lock_guard lock(mutex_);
  next_pace_.assign(1, std::move(pace));
  wake_.notify_one();
}

void FreeTokens::start() {
  thread_ = std::thread([this] { run(); });
}

void FreeTokens::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

StepLoopSnapshot FreeTokens::snapshot() const {
  const std::lock_guard lock(mutex_);
  StepLoopSnapshot s;
  s.num_running = num_live_ + static_cast<int64_t>(arrived_.size());
  s.num_output_tokens = num_given_;
  return s;
}

void FreeTokens::take_news() {
  live_.merge(arrived_);
  for (const SequenceId id : std::exchange(cancelled_, {})) {
    const auto at = live_.find(id);
    if (at == live_.end()) continue;
    at->second.on_update({.id = id, .tokens = {}, .logprobs = {}, .finished = SequenceEnd::kCancelled, .refused = {}});
    live_.erase(at);
  }
  if (!next_pace_.empty()) {
    pace_ = std::move(next_pace_.back());
    next_pace_.clear();
    next_round_ns_ = clock_.monotonic_ns();
  }
  num_live_ = static_cast<int64_t>(live_.size());
}

// False: stop.
bool FreeTokens::wait_for_round(std::unique_lock<std::mutex>& lock) {
  for (;;) {
    if (stopping_) return false;
    take_news();
    const int64_t now_ns = clock_.monotonic_ns();
    if (live_.empty()) {
      wake_.wait(lock, [this] { return stopping_ || !arrived_.empty() || !next_pace_.empty(); });
      next_round_ns_ = std::max(next_round_ns_, clock_.monotonic_ns());
    } else if (now_ns < next_round_ns_) {
      wake_.wait_for(lock, std::chrono::nanoseconds(next_round_ns_ - now_ns));
    } else if (num_given_a_round_ == 0) {  // all wait for their clients
      num_given_a_round_ = 1;
      wake_.wait_for(lock, std::chrono::microseconds(20));
    } else {
      return true;
    }
  }
}

bool FreeTokens::give(SequenceId id, Live& live) {
  if (live.client % pace_.num_parts != round_idx_ % pace_.num_parts) return false;
  if (pace_.may_give && !pace_.may_give(live.client, live.num_given)) return false;
  if (pace_.on_give) pace_.on_give(live.client, live.num_given, clock_.monotonic_ns());
  ++num_given_a_round_;
  const bool ends = ++live.num_given >= live.request.sequence.max_output_tokens;
  const SequenceRecord record;
  live.on_update({.id = id,
                  .tokens = {&token_, 1},
                  .logprobs = {},
                  .finished = ends ? std::optional(SequenceEnd::kLength) : std::nullopt,
                  .refused = {},
                  .record = ends ? &record : nullptr});
  return ends;
}

void FreeTokens::run() {
  std::unique_lock lock(mutex_);
  while (wait_for_round(lock)) {
    lock.unlock();
    num_given_a_round_ = 0;
    for (auto at = live_.begin(); at != live_.end();) {
      if (give(at->first, at->second)) at = live_.erase(at);
      else ++at;
    }
    next_round_ns_ += pace_.round_ns;
    ++round_idx_;
    lock.lock();
    num_given_ += num_given_a_round_;
  }
  take_news();
  for (auto& [id, live] : live_)
    live.on_update({.id = id, .tokens = {}, .logprobs = {}, .finished = SequenceEnd::kCancelled, .refused = {}});
  live_.clear();
}

}  // namespace deepinfer
