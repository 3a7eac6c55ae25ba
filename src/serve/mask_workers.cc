// SPDX-License-Identifier: MIT
#include "serve/mask_workers.h"

#include <chrono>
#include <utility>

namespace deepinfer {
namespace {

constexpr size_t kJobsMax = size_t{1} << 20;  // one a running sequence, and those that ended meanwhile

}  // namespace

MaskWorkers::MaskWorkers(int num_threads) : queue_(num_threads, kJobsMax) {}

void MaskWorkers::start(std::function<bool()> piece) {
  // Refused only when it stops: then nobody asks for the masks any more.
  static_cast<void>(queue_.push([this, piece = std::move(piece)]() mutable { run(std::move(piece)); }));
}

void MaskWorkers::run(std::function<bool()> piece) {
  if (!piece()) return start(std::move(piece));  // behind those that wait
  { const std::lock_guard lock(mutex_); }        // not between a waiter's question and its sleep
  done_.notify_all();
}

bool MaskWorkers::wait(int64_t wait_ns, const std::function<bool()>& holds) {
  std::unique_lock lock(mutex_);
  return done_.wait_for(lock, std::chrono::nanoseconds(wait_ns), holds);
}

}  // namespace deepinfer
