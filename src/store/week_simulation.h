// SPDX-License-Identifier: MIT
// A week of a request trace through the real store in simulated time: lifetimes, over-full, copy-forward and hit rate.
// The trace is stretched to the week, each of its blocks stands for 512 tokens; payloads are zeros, of which the device
// keeps the row headers only, so a week of terabytes fits in memory. Thread: one caller.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "store/block_store.h"

namespace deepinfer {

struct WeekRequest {
  int64_t at_ns = 0;  // since the week began
  int64_t num_prompt_tokens = 0;
  std::vector<uint64_t> blocks;  // ids of 512-token blocks: equal ids mean equal content and prefix
};

// Lines of a Mooncake trace (timestamp, input_length, hash_ids), stretched so that the last request comes at the end.
// Errors: invalid_argument with the line.
Result<std::vector<WeekRequest>> parse_week(std::string_view lines, int64_t duration_ns);

struct WeekOptions {
  int64_t capacity_bytes = 0;  // of Flash blocks (113,920 bytes); 0 = no limit
  TtlClass ttl_class = TtlClass::kAgent;
  int64_t segment_bytes_max = kSegmentBytesMax;
};

struct WeekReport {
  int64_t num_requests = 0, num_tokens = 0, num_hit_tokens = 0;
  int64_t peak_bytes = 0;  // as Flash blocks would take
  double effective_ttl_hours = 0;
  StoreStats stats;
  double hit_share() const { return static_cast<double>(num_hit_tokens) / static_cast<double>(num_tokens); }
};

Result<WeekReport> simulate_week(const std::vector<WeekRequest>& requests, const WeekOptions& options);

}  // namespace deepinfer
