// SPDX-License-Identifier: MIT
// Runs jobs one after another, in the order they came: on a thread of its own, so that the caller plans the next step
// meanwhile, or at once on the caller's. Stands where a device has its stream. Thread: one caller.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

namespace deepinfer {

class StepExecutor {
 public:
  // `feeds_device`: a caller that sleeps is woken behind the next job where there is one: it gives the device its work,
  // and a wake-up in front of it would leave the device idle.
  explicit StepExecutor(bool has_thread, bool feeds_device = false);
  ~StepExecutor();  // jobs that have come are run first
  StepExecutor(const StepExecutor&) = delete;
  StepExecutor& operator=(const StepExecutor&) = delete;

  bool has_thread() const { return thread_.joinable(); }
  // Returns the job's number: 1, 2, ... Without a thread the job has run when this returns.
  uint64_t post(std::function<void()> job);
  // Waits for that job and all before it. False when `timeout_ns` passed first.
  bool wait(uint64_t job, std::optional<int64_t> timeout_ns = {});
  void drain() { wait(num_posted_); }
  // Gives the thread up: for a job that never ends. What its job uses must never be destroyed then.
  void abandon();

 private:
  void run();
  bool wait_until(std::unique_lock<std::mutex>& lock, uint64_t num_run, std::optional<int64_t> timeout_ns = {});

  std::mutex mutex_;  // guards what stands below, up to thread_
  std::condition_variable wake_, done_;
  std::vector<std::function<void()>> jobs_;  // a ring
  const bool feeds_device_;
  uint64_t num_run_ = 0;
  uint64_t awaited_ = 0;  // the caller sleeps until so many have run; 0: it does not sleep
  bool stopping_ = false;
  uint64_t num_posted_ = 0;
  std::thread thread_;
};

}  // namespace deepinfer
