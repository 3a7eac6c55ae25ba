// SPDX-License-Identifier: MIT
#include "net/sse_writer.h"

#include <algorithm>

namespace deepinfer {
namespace {

// The first CR or LF. Texts are JSON, nearly always without either: two quick searches, not one through a set.
size_t find_line_end(std::string_view text) {
  const size_t line_feed = text.find('\n');
  return std::min(line_feed, text.substr(0, line_feed).find('\r'));
}

// Calls line(text) for each line; CR, LF and CRLF end one.
template <typename Line>
void for_each_line(std::string_view text, const Line& line) {
  for (;;) {
    const size_t end = find_line_end(text);
    line(text.substr(0, end));
    if (end == std::string_view::npos) return;
    text.remove_prefix(end + (text.substr(end, 2) == "\r\n" ? 2 : 1));
  }
}

}  // namespace

void append_sse_event(std::string& out, std::string_view name, std::string_view data) {
  if (!name.empty()) out.append("event: ").append(name.substr(0, find_line_end(name))).append("\n");
  for_each_line(data, [&](std::string_view line) { out.append("data: ").append(line).append("\n"); });
  out += '\n';
}

void append_sse_comment(std::string& out, std::string_view text) {
  for_each_line(text, [&](std::string_view line) { out.append(": ").append(line).append("\n"); });
  out += '\n';
}

}  // namespace deepinfer
