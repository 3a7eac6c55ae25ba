// SPDX-License-Identifier: MIT
// Sends frames to one server and gets the replies, any number at once. It connects when first needed and again after a
// failure, with a pause that grows; requests under way fail with unavailable. Many clients share one event thread.
// Thread: any; `done` runs on the event thread, exactly once, and must not block.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "net/frame.h"

namespace deepinfer {

// The event thread.
class FrameLoop {
 public:
  FrameLoop();
  ~FrameLoop();  // after its clients
  struct Parts;
  Parts& parts() { return *parts_; }

 private:
  std::unique_ptr<Parts> parts_;
};

struct FrameReply {
  Status status;  // unavailable: not connected, lost, no answer in time, too many under way; corruption: not a frame
  std::string head;
  FrameBody body;  // `into` of the request (empty when cancelled), or plain memory when that was too small
  size_t body_bytes = 0;
};

struct FrameCall {
  uint16_t type = 0;
  std::string head;
  FrameBody body;  // sent
  FrameBody into;  // where the reply's body goes; it need not be filled
  int64_t timeout_ns = 10'000'000'000;
  std::function<void(FrameReply reply)> done;
};

struct FrameClientOptions {
  std::string host;
  int port = 0;
  FrameSecurity security;
  FrameLimits limits;
  int64_t calls_max = 256;  // under way; more fail at once
  int64_t connect_timeout_ns = 2'000'000'000;
  int64_t retry_ns_min = 50'000'000, retry_ns_max = 2'000'000'000;
};

class FrameClient {
 public:
  // Errors: invalid_argument (host, TLS files).
  static Result<std::unique_ptr<FrameClient>> make(FrameLoop& loop, const FrameClientOptions& options);
  ~FrameClient();  // calls under way end first, with unavailable

  uint64_t send(FrameCall call);
  // The reply's body is not wanted any more: its memory is let go at once where it can be; `done` runs when the reply
  // comes, so that its delay is known.
  void cancel(uint64_t call);

 private:
  FrameClient();
  struct Connection;
  std::shared_ptr<Connection> connection_;
};

}  // namespace deepinfer
