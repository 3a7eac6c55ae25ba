// SPDX-License-Identifier: MIT
#include "store/driver_shard.h"

#include <fmt/format.h>

#include <charconv>
#include <future>

#include "base/check.h"
#include "store/byte_fields.h"
#include "store/shard_protocol.h"

namespace deepinfer {
namespace {

// A page buffer as the memory of a frame's body, and back.
struct BodyBuffer {
  PageBuffer buffer;
};

class ShardClientDevice final : public ShardDevice {
 public:
  ShardClientDevice(std::unique_ptr<FrameClient> client, const ShardOptions& options)
      : client_(std::move(client)), options_(options) {}

  std::string name() const override { return fmt::format("{}:{}", options_.host, options_.port); }

  DeviceOperation read(SegmentId segment, int64_t offset, int64_t num_bytes, PageBuffer buffer,
                       DeviceDone done) override {
    auto kept = std::make_shared<BodyBuffer>(BodyBuffer{std::move(buffer)});
    FrameBody into{kept->buffer.data(), static_cast<size_t>(kept->buffer.size()), kept};
    const std::weak_ptr<BodyBuffer> weak = kept;
    return DeviceOperation{
        client_->send({.type = static_cast<uint16_t>(ShardRequestType::kRead),
                       .head = encode_shard_request(ShardRequestType::kRead, {segment, offset, num_bytes}),
                       .into = std::move(into),
                       .timeout_ns = options_.timeout_ns,
                       .done = [weak, num_bytes, done = std::move(done)](FrameReply reply) {
                         DeviceReply out = reply_of(reply);
                         if (const auto own = weak.lock(); own && reply.body.owner) out.buffer = std::move(own->buffer);
                         out.num_bytes = std::min(num_bytes, static_cast<int64_t>(reply.body_bytes));
                         if (out.buffer.empty()) out.num_bytes = 0;
                         done(std::move(out));
                       }})};
  }

  void write(SegmentId segment, int64_t offset, PageBuffer buffer, int64_t num_bytes, DeviceDone done) override {
    auto kept = std::make_shared<BodyBuffer>(BodyBuffer{std::move(buffer)});
    client_->send({.type = static_cast<uint16_t>(ShardRequestType::kWrite),
                   .head = encode_shard_request(ShardRequestType::kWrite, {segment, offset, 0}),
                   .body = {kept->buffer.data(), static_cast<size_t>(num_bytes), kept},
                   .timeout_ns = options_.timeout_ns,
                   .done = [done = std::move(done)](FrameReply reply) { done(reply_of(reply)); }});
  }

  void cancel(DeviceOperation operation) override { client_->cancel(static_cast<uint64_t>(operation)); }

  Result<std::vector<SegmentFile>> list() override {
    const FrameReply reply = ask(ShardRequestType::kList, {});
    if (const DeviceReply out = reply_of(reply); !out.status.ok()) return out.status.prefixed(name());
    return decode_segment_files({reply.body.data, reply.body_bytes});
  }

  Status drop(SegmentId segment) override { return reply_of(ask(ShardRequestType::kDrop, {segment})).status; }

  DeviceSpace space() override {
    const FrameReply reply = ask(ShardRequestType::kSpace, {});
    if (!reply_of(reply).status.ok() || reply.body_bytes != 16) return {};
    FieldReader in({reply.body.data, reply.body_bytes});
    const auto total = in.get<int64_t>();
    return {total, in.get<int64_t>()};
  }

 private:
  static DeviceReply reply_of(const FrameReply& reply) {
    if (!reply.status.ok()) return {.status = unavailable(reply.status.message())};
    const ShardAnswer answer = decode_shard_answer(reply.head);
    return {.status = answer.status, .queue_depth = answer.queue_depth};
  }

  FrameReply ask(ShardRequestType type, const ShardRequest& request) {
    const auto promise = std::make_shared<std::promise<FrameReply>>();  // the callback may still be leaving it
    auto end = promise->get_future();
    client_->send({.type = static_cast<uint16_t>(type),
                   .head = encode_shard_request(type, request),
                   .timeout_ns = options_.timeout_ns,
                   .done = [promise](FrameReply reply) { promise->set_value(std::move(reply)); }});
    return end.get();
  }

  std::unique_ptr<FrameClient> client_;
  const ShardOptions options_;
};

}  // namespace

Result<std::unique_ptr<ShardDevice>> open_shard(FrameLoop& loop, const ShardOptions& options) {
  ASSIGN_OR_RETURN(std::unique_ptr<FrameClient> client,
                   FrameClient::make(loop, {.host = options.host,
                                            .port = options.port,
                                            .security = options.security,
                                            .limits = {.body_bytes_max = kShardRequestBytesMax},
                                            .calls_max = options.operations_max}));
  return std::unique_ptr<ShardDevice>(new ShardClientDevice(std::move(client), options));
}

Result<ShardOptions> parse_shard_address(const std::string& text) {
  const size_t colon = text.rfind(':');
  ShardOptions options;
  if (colon == std::string::npos || colon == 0) return invalid_argument(text + ": expected HOST:PORT");
  options.host = text.substr(0, colon);
  const char* const end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, options.port);
  if (parsed.ec != std::errc() || parsed.ptr != end || options.port < 1 || options.port > 65535)
    return invalid_argument(text + ": expected HOST:PORT with a port from 1 to 65535");
  return options;
}

}  // namespace deepinfer
