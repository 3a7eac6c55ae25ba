// SPDX-License-Identifier: MIT
#include "store/shard_server.h"

#include "base/check.h"
#include "store/byte_fields.h"
#include "store/shard_protocol.h"

namespace deepinfer {
namespace {

FrameBody body_of(PageBuffer buffer, int64_t num_bytes) {
  auto kept = std::make_shared<PageBuffer>(std::move(buffer));
  return {kept->data(), static_cast<size_t>(num_bytes), kept};
}

FrameBody body_of(std::vector<uint8_t> bytes) {
  auto kept = std::make_shared<std::vector<uint8_t>>(std::move(bytes));
  return {kept->data(), kept->size(), kept};
}

// Bodies of writes arrive in page buffers, ready for O_DIRECT.
struct IncomingBuffer {
  PageBuffer buffer;
};
FrameBody allocate_pages(size_t size) {
  auto kept = std::make_shared<IncomingBuffer>(IncomingBuffer{PageBuffer::of(static_cast<int64_t>(size))});
  return {kept->buffer.data(), size, kept};
}
PageBuffer take_pages(const FrameBody& body) {
  return std::move(const_cast<IncomingBuffer*>(static_cast<const IncomingBuffer*>(body.owner.get()))->buffer);
}

}  // namespace

Result<std::unique_ptr<ShardServer>> ShardServer::start(const ShardServerOptions& options,
                                                        std::unique_ptr<ShardDevice> device) {
  std::unique_ptr<ShardServer> server(new ShardServer(std::move(device), options.may_write));
  ASSIGN_OR_RETURN(server->server_,
                   FrameServer::start({.host = options.host,
                                       .port = options.port,
                                       .num_threads = options.num_threads,
                                       .security = options.security,
                                       .limits = {.body_bytes_max = kShardRequestBytesMax},
                                       .allocate = allocate_pages},
                                      [s = server.get()](FrameRequest request, FrameReplyFunction reply) {
                                        s->handle(std::move(request), std::move(reply));
                                      }));
  return server;
}

ShardServer::~ShardServer() {
  if (server_) server_->stop();
  device_.reset();  // its operations end; what they reply goes nowhere
}

ShardServerCounts ShardServer::counts() const {
  return {.num_connections = server_->num_connections(),
          .num_refused = server_->num_refused(),
          .num_reads = num_reads_,
          .num_writes = num_writes_,
          .num_failures = num_failures_,
          .queue_depth = depth_};
}

void ShardServer::finish(const FrameReplyFunction& reply, DeviceReply done, bool with_bytes) {
  const int64_t depth = --depth_;
  num_failures_ += !done.status.ok();
  const bool has_body = with_bytes && done.status.ok() && done.num_bytes > 0;
  reply(encode_shard_answer({done.status, depth}),
        has_body ? body_of(std::move(done.buffer), done.num_bytes) : FrameBody{});
}

void ShardServer::handle(FrameRequest request, FrameReplyFunction reply) {
  ++depth_;
  const auto decoded = decode_shard_request(request.type, request.head);
  if (!decoded.ok()) return finish(reply, {.status = decoded.status()}, false);
  const ShardRequest& asked = decoded.value();
  const auto size = static_cast<int64_t>(request.body.size);
  const auto type = static_cast<ShardRequestType>(request.type);
  if ((type == ShardRequestType::kWrite || type == ShardRequestType::kDrop) && may_write_ && !may_write_())
    return finish(reply, {.status = unavailable("this server's lease has run out")}, false);
  switch (type) {
    case ShardRequestType::kRead:
      ++num_reads_;
      if (size > 0 || asked.num_bytes == 0)
        return finish(reply, {.status = invalid_argument("shard read: expected a length and no body")}, false);
      device_->read(asked.segment, asked.offset, asked.num_bytes, PageBuffer::of(asked.num_bytes),
                    [this, reply](DeviceReply done) { finish(reply, std::move(done), true); });
      return;
    case ShardRequestType::kWrite:
      ++num_writes_;
      if (size == 0 || size % kPageBytes != 0)
        return finish(reply, {.status = invalid_argument("shard write: expected a body of whole pages")}, false);
      device_->write(asked.segment, asked.offset, take_pages(request.body), size,
                     [this, reply](DeviceReply done) { finish(reply, std::move(done), false); });
      return;
    case ShardRequestType::kDrop: return finish(reply, {.status = device_->drop(asked.segment)}, false);
    case ShardRequestType::kList: {
      const auto files = device_->list();
      --depth_;
      reply(encode_shard_answer({files.status(), depth_}),
            files.ok() ? body_of(encode_segment_files(files.value())) : FrameBody{});
      return;
    }
    case ShardRequestType::kSpace: {
      const DeviceSpace space = device_->space();
      std::vector<uint8_t> bytes(16);
      FieldWriter out(bytes);
      out.put(space.total_bytes);
      out.put(space.free_bytes);
      --depth_;
      return reply(encode_shard_answer({{}, depth_}), body_of(std::move(bytes)));
    }
  }
}

}  // namespace deepinfer
