// SPDX-License-Identifier: MIT
// The `shard` driver: a device that is a shard server (shard_server.h) on another machine. Thread: any.
#pragma once

#include <memory>
#include <string>

#include "net/frame_client.h"
#include "store/driver.h"

namespace deepinfer {

struct ShardOptions {
  std::string host;
  int port = 0;
  FrameSecurity security;
  int64_t timeout_ns = 10'000'000'000;  // of one operation
  int64_t operations_max = 256;         // under way; more fail at once
};

// Connects when first used. Errors: invalid_argument (host, TLS files). `loop` outlives the device.
Result<std::unique_ptr<ShardDevice>> open_shard(FrameLoop& loop, const ShardOptions& options);

// "HOST:PORT" with an IP address. Errors: invalid_argument.
Result<ShardOptions> parse_shard_address(const std::string& text);

}  // namespace deepinfer
