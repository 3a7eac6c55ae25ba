// SPDX-License-Identifier: MIT
// Which trace a request belongs to: W3C Trace Context's `traceparent` field, taken in and passed on. Plain values.
// Source: https://www.w3.org/TR/trace-context/ section 3.2.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

struct TraceContext {
  std::string trace_id;   // 32 hex digits
  std::string parent_id;  // 16 hex digits; empty: the trace begins here
  std::string span_id;    // ours, 16 hex digits
  bool is_sampled = true;

  // For whoever is called on behalf of this request: our span is its parent.
  std::string traceparent() const;
};

// Continues the trace of `traceparent`; begins one where that is absent or not of the standard's form.
TraceContext continue_trace(std::string_view traceparent);

}  // namespace deepinfer
