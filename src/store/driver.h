// SPDX-License-Identifier: MIT
// A shard device: keeps segment files by id and offset (decision 13). Drivers: a directory (driver_dir), a shard server
// over TCP (driver_shard), a RADOS pool (driver_rados). Coding, hedging and the meaning of the bytes are above it.
//
// Reads and writes are asynchronous: the call returns at once and `done` runs exactly once, on a thread of the driver
// or, when the device refuses at once, inside the call; it must not block. Buffers are given away with the operation
// and come back with its end, so nobody frees one that a late reply still fills. Thread: any, for every member.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/extent.h"
#include "store/page_buffer.h"

namespace deepinfer {

struct DeviceReply {
  Status status;            // unavailable: no answer; not_found: no such bytes; resource_exhausted: no room; corruption
  PageBuffer buffer;        // what was given; of a read, filled up to `num_bytes`. Empty after a cancelled read
  int64_t num_bytes = 0;    // less than asked for at the end of a segment
  int64_t queue_depth = 0;  // operations waiting at the device when it answered
  bool cancelled = false;   // taken back before the device answered: says nothing about the device
};
using DeviceDone = std::function<void(DeviceReply reply)>;

enum class DeviceOperation : uint64_t {};  // names a read under way, for cancel()

struct SegmentFile {
  SegmentId id{};
  int64_t num_bytes = 0;
};

struct DeviceSpace {
  int64_t total_bytes = 0, free_bytes = 0;  // 0 and 0 when the driver cannot tell
};

class ShardDevice {
 public:
  virtual ~ShardDevice() = default;  // operations under way end first, with unavailable

  virtual std::string name() const = 0;
  // `num_bytes` from `offset`, both multiples of the page, into `buffer`.
  virtual DeviceOperation read(SegmentId segment, int64_t offset, int64_t num_bytes, PageBuffer buffer,
                               DeviceDone done) = 0;
  // Makes the segment on first use; bytes may come in any order, and again. `done` means: survives a crash of the
  // process that keeps them (of the machine too, where the driver was opened `durable`).
  virtual void write(SegmentId segment, int64_t offset, PageBuffer buffer, int64_t num_bytes, DeviceDone done) = 0;
  // The result is no longer wanted: the device lets go of the buffer as early as it can and `done` still runs once.
  virtual void cancel(DeviceOperation) {}

  // These block.
  virtual Result<std::vector<SegmentFile>> list() = 0;
  virtual Status drop(SegmentId segment) = 0;  // also when it does not exist
  virtual DeviceSpace space() { return {}; }
};

// Blocking forms, for opening and for tools. A short read is an error (not_found).
Result<PageBuffer> read_now(ShardDevice& device, SegmentId segment, int64_t offset, int64_t num_bytes);
Status write_now(ShardDevice& device, SegmentId segment, int64_t offset, PageBuffer buffer, int64_t num_bytes);

}  // namespace deepinfer
