// SPDX-License-Identifier: MIT
#include "engine/step_executor.h"

#include <chrono>
#include <utility>

#include "base/check.h"

namespace deepinfer {
namespace {
constexpr size_t kJobsMax = 256;  // a caller that is further ahead waits
}

StepExecutor::StepExecutor(bool has_thread) : jobs_(kJobsMax) {
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

uint64_t StepExecutor::post(std::function<void()> job) {
  if (!has_thread()) {
    job();
    num_run_ = ++num_posted_;
    return num_posted_;
  }
  {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return num_posted_ - num_run_ < jobs_.size(); });
    jobs_[num_posted_++ % jobs_.size()] = std::move(job);
  }
  wake_.notify_one();
  return num_posted_;
}

bool StepExecutor::wait(uint64_t job, std::optional<int64_t> timeout_ns) {
  if (!has_thread()) return num_run_ >= job;
  std::unique_lock lock(mutex_);
  const auto is_done = [&] { return num_run_ >= job; };
  if (timeout_ns) return done_.wait_for(lock, std::chrono::nanoseconds(*timeout_ns), is_done);
  done_.wait(lock, is_done);
  return true;
}

void StepExecutor::abandon() {
  if (has_thread()) thread_.detach();
}

void StepExecutor::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || num_run_ < num_posted_; });
    if (num_run_ == num_posted_) return;  // stopping, and nothing is left
    std::function<void()> job = std::move(jobs_[num_run_ % jobs_.size()]);
    lock.unlock();
    job();
    job = nullptr;  // what it holds goes before it counts as run
    lock.lock();
    ++num_run_;
    done_.notify_all();
  }
}

}  // namespace deepinfer
