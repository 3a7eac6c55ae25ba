// SPDX-License-Identifier: MIT
#include "engine/block_mover.h"

#include <utility>

#include "base/check.h"
#include "base/clock.h"

namespace deepinfer {

BlockMover::BlockMover(Engine& engine, int64_t num_slots)
    : engine_(engine), block_bytes_(engine.cache_layout().block_bytes) {
  if (num_slots == 0) return;
  host_.reset(new uint8_t[static_cast<size_t>(num_slots * block_bytes_)]);  // not zeroed: that would touch it all
  thread_ = std::thread([this] { run(); });
}

BlockMover::~BlockMover() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void BlockMover::start(std::span<const BlockCopy> copies) {
  if (copies.empty()) return;
  CHECK(host_ != nullptr);
  {
    const std::lock_guard lock(mutex_);
    waiting_.insert(waiting_.end(), copies.begin(), copies.end());
    num_under_way_ += static_cast<int64_t>(copies.size());
  }
  wake_.notify_one();
}

std::vector<BlockCopy> BlockMover::take_finished() {
  const std::lock_guard lock(mutex_);
  return std::exchange(finished_, {});
}

void BlockMover::wait_for_all() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return num_under_way_ == 0; });
}

void BlockMover::wait_for_any() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return num_under_way_ == 0 || !finished_.empty(); });
}

int64_t BlockMover::num_under_way() const {
  const std::lock_guard lock(mutex_);
  return num_under_way_;
}

BlockMoverStats BlockMover::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void BlockMover::copy(const BlockCopy& copy) {
  const std::span<uint8_t> slot(host_.get() + static_cast<int64_t>(copy.slot) * block_bytes_,
                                static_cast<size_t>(block_bytes_));
  const Status status = copy.direction == BlockCopy::Direction::kLoad ? engine_.write_block(copy.block, slot)
                                                                      : engine_.read_block(copy.block, slot);
  CHECK(status.ok());
}

void BlockMover::run() {
  const SystemClock clock;
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (stopping_) return;
    const BlockCopy next = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    const int64_t begin_ns = clock.monotonic_ns();
    copy(next);
    const int64_t taken_ns = clock.monotonic_ns() - begin_ns;
    lock.lock();
    finished_.push_back(next);
    --num_under_way_;
    ++stats_.num_copies;
    stats_.num_bytes += block_bytes_;
    stats_.busy_ns += taken_ns;
    done_.notify_all();
  }
}

}  // namespace deepinfer
