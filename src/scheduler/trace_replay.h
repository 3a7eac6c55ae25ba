// SPDX-License-Identifier: MIT
// Replays a published request trace through the scheduler and the prefix cache in virtual time, with the step-time
// curve in place of a device. Content comes from the trace's block ids: equal ids give equal tokens. Used by tests and
// benches; a simulated fleet will read the same files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "kv/prefix_cache.h"

namespace deepinfer {

inline constexpr int64_t kTraceBlockTokens = 512;  // of the Mooncake traces

struct TraceRequest {
  int64_t arrival_ns = 0;
  int64_t num_prompt_tokens = 0, num_output_tokens = 0;
  std::vector<int64_t> block_ids;  // one per started 512 tokens
};

// JSON lines {timestamp (ms), input_length, output_length, hash_ids}. Errors name the line.
Result<std::vector<TraceRequest>> parse_trace(std::string_view text);

// Tokens of a prompt: each trace block is 512 tokens determined by its id.
std::vector<TokenId> trace_tokens(const TraceRequest& request);

struct TraceReport {
  int64_t num_requests = 0, num_prompt_tokens = 0, num_hit_tokens = 0;
  int64_t num_trace_blocks = 0,
          num_hit_trace_blocks = 0;  // 512-token blocks of the trace, and those begun within a hit
  int64_t num_steps = 0, virtual_ns = 0;
  PrefixCacheStats cache;
};

// Runs every request (prompt and one token of output) to its end. num_blocks: 128-token blocks of the pool.
TraceReport replay_trace(const std::vector<TraceRequest>& trace, int64_t num_blocks, int64_t num_host_slots);

}  // namespace deepinfer
