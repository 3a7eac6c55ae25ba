// SPDX-License-Identifier: MIT
#include "store/faulty_device.h"

#include "base/clock.h"

namespace deepinfer {
namespace {

constexpr std::chrono::microseconds kLookEvery{200};  // while something is held: whoever ends a fault tells nobody

}  // namespace

FaultyDevice::FaultyDevice(std::unique_ptr<ShardDevice> device, DeviceFaults& faults)
    : faults_(faults), device_(std::move(device)), thread_([this] { run_held(); }) {}

FaultyDevice::~FaultyDevice() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_one();
  thread_.join();
  device_.reset();
}

// Runs later: after the delay, and not while the device is silent.
void FaultyDevice::hold(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    held_.push_back({SystemClock().monotonic_ns() + faults_.delay_ns, std::move(work)});
  }
  changed_.notify_one();
}

void FaultyDevice::run_held() {
  for (;;) {
    std::vector<std::function<void()>> due;
    bool stopping = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return stopping_ || !held_.empty(); });
      stopping = stopping_;
      const int64_t now_ns = SystemClock().monotonic_ns();
      std::erase_if(held_, [&](Held& held) {
        if (!stopping && (faults_.silent || now_ns < held.due_ns)) return false;
        due.push_back(std::move(held.work));
        return true;
      });
    }
    for (const auto& work : due) work();
    if (stopping) return;
    if (due.empty()) std::this_thread::sleep_for(kLookEvery);
  }
}

DeviceOperation FaultyDevice::read(SegmentId segment, int64_t offset, int64_t num_bytes, PageBuffer buffer,
                                   DeviceDone done) {
  ++faults_.num_reads;
  if (faults_.dead || faults_.unreadable) {
    done({.status = faults_.dead ? unavailable(name() + ": connection refused") : corruption(name() + ": read error"),
          .buffer = std::move(buffer)});
    ++faults_.num_answered;
    return {};
  }
  const auto answer = [&faults = faults_, done = std::move(done)](DeviceReply reply) {
    done(std::move(reply));
    ++faults.num_answered;
  };
  return device_->read(segment, offset, num_bytes, std::move(buffer), [this, answer](DeviceReply reply) {
    const int64_t bit = faults_.flip_bit;
    if (bit >= 0 && bit / 8 < reply.num_bytes) reply.buffer.data()[bit / 8] ^= static_cast<uint8_t>(1 << (bit % 8));
    if (!faults_.silent && faults_.delay_ns == 0) return answer(std::move(reply));
    auto kept = std::make_shared<DeviceReply>(std::move(reply));
    hold([kept, answer] { answer(std::move(*kept)); });
  });
}

void FaultyDevice::write(SegmentId segment, int64_t offset, PageBuffer buffer, int64_t num_bytes, DeviceDone done) {
  ++faults_.num_writes;
  if (faults_.dead || faults_.full) {
    done({.status = faults_.dead ? unavailable(name() + ": connection refused")
                                 : resource_exhausted(name() + ": no space left on device"),
          .buffer = std::move(buffer)});
    return;
  }
  ++faults_.num_writing;
  const auto answer = [&faults = faults_, done = std::move(done)](DeviceReply reply) {
    --faults.num_writing;
    done(std::move(reply));
  };
  if (!faults_.silent) return device_->write(segment, offset, std::move(buffer), num_bytes, answer);
  auto kept = std::make_shared<PageBuffer>(std::move(buffer));
  hold([this, segment, offset, kept, num_bytes, answer] {
    device_->write(segment, offset, std::move(*kept), num_bytes, answer);
  });
}

Result<std::vector<SegmentFile>> FaultyDevice::list() {
  if (faults_.dead) return unavailable(name() + ": connection refused");
  return device_->list();
}

Status FaultyDevice::drop(SegmentId segment) {
  if (faults_.dead) return unavailable(name() + ": connection refused");
  return device_->drop(segment);
}

}  // namespace deepinfer
