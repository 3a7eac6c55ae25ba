// SPDX-License-Identifier: MIT
// Serves frames: each request is answered by one reply with the same id, in any order. Every connection has bounds on
// requests under way, on lengths and on silence in the middle of a frame. Thread: any; the handler runs on the event
// threads and must not block; reply functions may be called from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "net/frame.h"

namespace deepinfer {

struct FrameRequest {
  uint16_t type = 0;
  std::string head;
  FrameBody body;
};
// One reply, once; dropped when the client has gone.
using FrameReplyFunction = std::function<void(std::string head, FrameBody body)>;
using FrameHandler = std::function<void(FrameRequest request, FrameReplyFunction reply)>;

struct FrameServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0 = any free one
  int num_threads = 1;
  FrameSecurity security;
  FrameLimits limits;
  int64_t connections_max = 1024;
  int64_t requests_max = 512;  // under way on one connection; then it is not read on
  int64_t handshake_timeout_ns = 5'000'000'000;
  std::function<FrameBody(size_t size)> allocate = plain_frame_body;  // for bodies of requests
};

class FrameServer {
 public:
  // Errors: invalid_argument (host, TLS files), unavailable (the address cannot be bound).
  static Result<std::unique_ptr<FrameServer>> start(const FrameServerOptions& options, FrameHandler handler);
  ~FrameServer();  // after every reply function has been called or dropped
  void stop();     // no request is handled from here on; late replies go nowhere
  int port() const;
  int64_t num_connections() const;
  int64_t num_refused() const;  // wrong secret or certificate, not a frame, too long

 private:
  FrameServer();
  struct Parts;  // Boost
  std::shared_ptr<Parts> parts_;
};

}  // namespace deepinfer
