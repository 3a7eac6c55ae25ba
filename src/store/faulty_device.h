// SPDX-License-Identifier: MIT
// A device that fails as it is told to, around a real one: for tests and drills. Thread: any.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "store/driver.h"

namespace deepinfer {

struct DeviceFaults {
  std::atomic<bool> dead{false};        // refuses everything at once
  std::atomic<bool> silent{false};      // takes operations and answers none until it is false again
  std::atomic<bool> full{false};        // writes find no room
  std::atomic<bool> unreadable{false};  // the disk reports an error for every read
  std::atomic<int64_t> delay_ns{0};     // of every answer to a read
  std::atomic<int64_t> flip_bit{-1};    // this bit of what is read is wrong (counted within each read)
  std::atomic<int64_t> num_reads{0}, num_writes{0};
  std::atomic<int64_t> num_answered{0};  // reads whose answer has been handed over
  std::atomic<int64_t> num_writing{0};   // not answered yet: a store acknowledges before its last shard does
};

class FaultyDevice final : public ShardDevice {
 public:
  FaultyDevice(std::unique_ptr<ShardDevice> device, DeviceFaults& faults);
  ~FaultyDevice() override;

  std::string name() const override { return device_->name(); }
  DeviceOperation read(SegmentId segment, int64_t offset, int64_t num_bytes, PageBuffer buffer,
                       DeviceDone done) override;
  void write(SegmentId segment, int64_t offset, PageBuffer buffer, int64_t num_bytes, DeviceDone done) override;
  Result<std::vector<SegmentFile>> list() override;
  Status drop(SegmentId segment) override;
  DeviceSpace space() override { return device_->space(); }

 private:
  void hold(std::function<void()> work);
  void run_held();
  DeviceFaults& faults_;
  std::unique_ptr<ShardDevice> device_;
  struct Held {
    int64_t due_ns;
    std::function<void()> work;
  };
  std::mutex mutex_;  // guards held_ and stopping_
  std::condition_variable changed_;
  std::vector<Held> held_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace deepinfer
