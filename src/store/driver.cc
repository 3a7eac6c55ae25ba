// SPDX-License-Identifier: MIT
#include "store/driver.h"

#include <fmt/format.h>

#include <future>

namespace deepinfer {

Result<PageBuffer> read_now(ShardDevice& device, SegmentId segment, int64_t offset, int64_t num_bytes) {
  std::promise<DeviceReply> promise;
  device.read(segment, offset, num_bytes, PageBuffer::of(num_bytes),
              [&promise](DeviceReply reply) { promise.set_value(std::move(reply)); });
  DeviceReply reply = promise.get_future().get();
  if (!reply.status.ok()) return reply.status;
  if (reply.num_bytes < num_bytes)
    return not_found(fmt::format("{}: segment {:016x} ends at {}, expected {} bytes more", device.name(),
                                 static_cast<uint64_t>(segment), offset + reply.num_bytes,
                                 num_bytes - reply.num_bytes));
  return std::move(reply.buffer);
}

Status write_now(ShardDevice& device, SegmentId segment, int64_t offset, PageBuffer buffer, int64_t num_bytes) {
  std::promise<Status> promise;
  device.write(segment, offset, std::move(buffer), num_bytes,
               [&promise](DeviceReply reply) { promise.set_value(reply.status); });
  return promise.get_future().get();
}

}  // namespace deepinfer
