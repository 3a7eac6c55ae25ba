// SPDX-License-Identifier: MIT
#include "store/driver.h"

#include <fmt/format.h>

#include <future>
#include <memory>

namespace deepinfer {
namespace {

// The promise is shared with the callback, which may still be leaving set_value() when the caller goes on.
template <typename Start>
DeviceReply wait_for_end(const Start& start) {
  const auto promise = std::make_shared<std::promise<DeviceReply>>();
  auto reply = promise->get_future();
  start([promise](DeviceReply end) { promise->set_value(std::move(end)); });
  return reply.get();
}

}  // namespace

Result<PageBuffer> read_now(ShardDevice& device, SegmentId segment, int64_t offset, int64_t num_bytes) {
  DeviceReply reply = wait_for_end(
      [&](DeviceDone done) { device.read(segment, offset, num_bytes, PageBuffer::of(num_bytes), std::move(done)); });
  if (!reply.status.ok()) return reply.status;
  if (reply.num_bytes < num_bytes)
    return not_found(fmt::format("{}: segment {:016x} ends at {}, expected {} bytes more", device.name(),
                                 static_cast<uint64_t>(segment), offset + reply.num_bytes,
                                 num_bytes - reply.num_bytes));
  return std::move(reply.buffer);
}

Status write_now(ShardDevice& device, SegmentId segment, int64_t offset, PageBuffer buffer, int64_t num_bytes) {
  return wait_for_end(
             [&](DeviceDone done) { device.write(segment, offset, std::move(buffer), num_bytes, std::move(done)); })
      .status;
}

}  // namespace deepinfer
