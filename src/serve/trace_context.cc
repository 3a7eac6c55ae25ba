// SPDX-License-Identifier: MIT
#include "serve/trace_context.h"

#include <algorithm>

#include "base/entropy.h"

namespace deepinfer {
namespace {

bool is_hex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}
bool is_zero(std::string_view text) { return text.find_first_not_of('0') == std::string_view::npos; }

// version "-" trace-id "-" parent-id "-" flags; a later version may have more behind it, version ff is no version.
bool is_traceparent(std::string_view t) {
  if (t.size() < 55 || t[2] != '-' || t[35] != '-' || t[52] != '-') return false;
  if (t.size() > 55 && (t.substr(0, 2) == "00" || t[55] != '-')) return false;
  return is_hex(t.substr(0, 2)) && t.substr(0, 2) != "ff" && is_hex(t.substr(3, 32)) && is_hex(t.substr(36, 16)) &&
         is_hex(t.substr(53, 2)) && !is_zero(t.substr(3, 32)) && !is_zero(t.substr(36, 16));
}

}  // namespace

std::string TraceContext::traceparent() const {
  return "00-" + trace_id + "-" + span_id + (is_sampled ? "-01" : "-00");
}

TraceContext continue_trace(std::string_view traceparent) {
  TraceContext trace;
  trace.span_id = entropy_hex(8);
  if (!is_traceparent(traceparent)) {
    trace.trace_id = entropy_hex(16);
    return trace;
  }
  trace.trace_id = traceparent.substr(3, 32);
  trace.parent_id = traceparent.substr(36, 16);
  const char flags = traceparent[54];
  trace.is_sampled = ((flags >= 'a' ? flags - 'a' + 10 : flags - '0') & 1) != 0;
  return trace;
}

}  // namespace deepinfer
