// SPDX-License-Identifier: MIT
// The `response` object that the Responses protocol repeats in its first and last events: what does not change is
// written once. Key order follows chat.md 5.3.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "chat/usage.h"
#include "protocol/response_encoder.h"

namespace deepinfer {

class ResponseObject {
 public:
  enum class Status { kInProgress, kCompleted, kIncomplete, kFailed };

  ResponseObject(const ResponseContext& context, const ResponseIdentity& identity);

  struct State {
    Status status = Status::kInProgress;
    int64_t completed_s = 0;
    std::string_view incomplete_reason;  // empty: none
    std::string_view error;              // JSON; empty: none
    std::string_view output;             // the items as JSON, comma-separated
    const Usage* usage = nullptr;        // null while in progress
  };
  void append(std::string& out, const State& state) const;

 private:
  bool recipe_compatible_;
  std::string head_;      // up to the status
  std::string settings_;  // from `instructions` to `moderation`
  std::string tail_;      // from `parallel_tool_calls` to `truncation`
  std::string end_;       // `user` and `metadata`
};

}  // namespace deepinfer
