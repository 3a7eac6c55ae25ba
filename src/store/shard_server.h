// SPDX-License-Identifier: MIT
// Serves one device (a directory, as a rule) to the stores of other machines over TCP: `deepinfer store serve`. Every
// answer carries the number of operations that wait, for the clients' choice of whom to ask. Thread: any.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

#include "net/frame_server.h"
#include "store/driver.h"

namespace deepinfer {

struct ShardServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;
  int num_threads = 1;
  FrameSecurity security;
  std::function<bool()> may_write;  // asked before each write and drop; empty = always
};

struct ShardServerCounts {
  int64_t num_connections = 0, num_refused = 0;
  int64_t num_reads = 0, num_writes = 0, num_failures = 0, queue_depth = 0;
};

class ShardServer {
 public:
  static Result<std::unique_ptr<ShardServer>> start(const ShardServerOptions& options,
                                                    std::unique_ptr<ShardDevice> device);
  ~ShardServer();
  int port() const { return server_->port(); }
  ShardServerCounts counts() const;

 private:
  ShardServer(std::unique_ptr<ShardDevice> device, std::function<bool()> may_write)
      : may_write_(std::move(may_write)), device_(std::move(device)) {}
  void handle(FrameRequest request, FrameReplyFunction reply);
  void finish(const FrameReplyFunction& reply, DeviceReply done, bool with_bytes);

  const std::function<bool()> may_write_;
  std::atomic<int64_t> num_reads_{0}, num_writes_{0}, num_failures_{0}, depth_{0};
  std::unique_ptr<ShardDevice> device_;
  std::unique_ptr<FrameServer> server_;
};

}  // namespace deepinfer
