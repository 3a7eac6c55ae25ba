// SPDX-License-Identifier: MIT
#include "engine/step_executor.h"

#include <chrono>
#include <utility>

#include "base/check.h"

namespace deepinfer {
namespace {
constexpr size_t kJobsMax = 256;  // a caller that is further ahead waits
}

StepExecutor::StepExecutor(bool has_thread, bool feeds_device) : jobs_(kJobsMax), feeds_device_(feeds_device) {
  if (has_thread) thread_ = std::thread([this] { run(); });
}

StepExecutor::~StepExecutor() {
  if (!has_thread()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

// The thread wakes the caller for the job it sleeps for, and for no other: a wake-up takes the thread some 20 us where
// the caller's core is idle.
bool StepExecutor::wait_until(std::unique_lock<std::mutex>& lock, uint64_t num_run, std::optional<int64_t> timeout_ns) {
  awaited_ = num_run;
  const auto has_run = [&] { return num_run_ >= num_run; };
  bool in_time = true;
  if (timeout_ns) in_time = done_.wait_for(lock, std::chrono::nanoseconds(*timeout_ns), has_run);
  else done_.wait(lock, has_run);
  awaited_ = 0;
  return in_time;
}

uint64_t StepExecutor::post(std::function<void()> job) {
  if (!has_thread()) {
    job();
    num_run_ = ++num_posted_;
    return num_posted_;
  }
  {
    std::unique_lock lock(mutex_);
    if (num_posted_ - num_run_ == jobs_.size()) wait_until(lock, num_run_ + 1);
    jobs_[num_posted_++ % jobs_.size()] = std::move(job);
  }
  wake_.notify_one();
  return num_posted_;
}

bool StepExecutor::wait(uint64_t job, std::optional<int64_t> timeout_ns) {
  if (!has_thread()) return num_run_ >= job;
  std::unique_lock lock(mutex_);
  return wait_until(lock, job, timeout_ns);
}

void StepExecutor::abandon() {
  if (has_thread()) thread_.detach();
}

void StepExecutor::run() {
  std::unique_lock lock(mutex_);
  bool is_put_off = false;
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || num_run_ < num_posted_; });
    if (num_run_ == num_posted_) return;  // stopping, and nothing is left
    std::function<void()> job = std::move(jobs_[num_run_ % jobs_.size()]);
    lock.unlock();
    job();
    job = nullptr;  // what it holds goes before it counts as run
    lock.lock();
    ++num_run_;
    const bool is_awaited = awaited_ > 0 && num_run_ >= awaited_;
    is_put_off = is_awaited && !is_put_off && feeds_device_ && num_run_ < num_posted_;
    if (!is_awaited || is_put_off) continue;
    lock.unlock();
    done_.notify_one();
    lock.lock();
  }
}

}  // namespace deepinfer
