// SPDX-License-Identifier: MIT
// What is known about a request when it is over: for the log, the metrics, the live page and spans. Never its text.
// Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "scheduler/sequence.h"
#include "serve/trace_context.h"

namespace deepinfer {

struct RequestRecord {
  std::string id, method, route;
  std::string owner;  // name of the key; "" without keys
  TraceContext trace;
  int status = 0;      // 0: under way
  std::string finish;  // of a generation: stop, length, tool_calls, abort, error
  int64_t begin_unix_ns = 0;
  int64_t begin_ns = 0, end_ns = 0;  // monotonic
  int64_t num_prompt_tokens = 0, num_cached_tokens = 0, num_output_tokens = 0;
  std::optional<SequenceRecord> sequence;  // of the first choice; its times are monotonic too
};

}  // namespace deepinfer
