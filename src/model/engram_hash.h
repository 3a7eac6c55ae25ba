// SPDX-License-Identifier: MIT
// The Engram hash (engram/hasher.h) on a device, for tables that the device reads itself: tokens in, row numbers out,
// the same integers as the host's.
#pragma once

#include <cstdint>

#include "engram/hasher.h"
#include "tensor/buffer.h"
#include "tensor/device.h"

namespace deepinfer {

struct EngramHashRun {
  // The plan, on the device: class of every token id; multipliers [tables, look_back]; primes and offsets [tables,
  // rows_per_token].
  const int32_t* classes = nullptr;
  const int64_t *multipliers = nullptr, *primes = nullptr, *offsets = nullptr;
  int64_t num_ids = 0, num_tables = 0, look_back = 0, rows_per_token = 0;
  int32_t pad_class = 0, num_heads = 0;
  // The step: tokens [rows, look_back], newest first; row numbers [tables, table_stride].
  const TokenId* tokens = nullptr;
  int64_t num_rows = 0, table_stride = 0;
  int64_t* out = nullptr;
};

// Null where the build has no device (cuda_absent.cc).
using EngramHashLaunch = void (*)(void* stream, const EngramHashRun& run);
extern const EngramHashLaunch kEngramHashCuda;

// The plan's tables in the memory of a device.
class DeviceHasher {
 public:
  DeviceHasher() = default;
  DeviceHasher(Device& device, const EngramHasher& hasher, TokenId pad_token_id, int64_t table_stride);
  bool empty() const { return classes_.size() == 0; }
  void run(Device& device, const TokenId* tokens, int64_t num_rows, int64_t* out) const;

 private:
  EngramHashRun plan_;
  Buffer<int32_t> classes_;
  Buffer<int64_t> multipliers_, primes_, offsets_;
};

// Where the step's rows of an Engram table stand in Workspace::engram_bytes: [rows, rows_per_token] codes, then scales.
// All of a step's stand together, so that one copy brings them.
struct EngramPlaces {
  int64_t codes = 0, scales = 0, end = 0;
};
EngramPlaces engram_places_of(const EngramConfig& engram, int64_t num_rows, int table);

}  // namespace deepinfer
