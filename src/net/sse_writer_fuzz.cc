// SPDX-License-Identifier: MIT
// Any text as data: a reader of the stream gets it back (line breaks become \n) and sees exactly one event.
#include <string>
#include <vector>

#include "base/check.h"
#include "base/fuzz.h"
#include "net/sse_writer.h"

namespace deepinfer {
namespace {

std::string with_plain_line_breaks(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      out += '\n';
      if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
    } else {
      out += text[i];
    }
  }
  return out;
}

// The reading rule of the standard for event and data lines.
std::vector<std::string> read_events(std::string_view stream) {
  std::vector<std::string> events;
  std::string data;
  bool has_data = false;
  while (!stream.empty()) {
    const size_t end = stream.find('\n');
    CHECK(end != std::string_view::npos);
    const std::string_view line = stream.substr(0, end);
    stream.remove_prefix(end + 1);
    if (line.empty()) {
      if (has_data) events.push_back(data);
      data.clear();
      has_data = false;
    } else if (line.starts_with("data: ")) {
      if (has_data) data += '\n';
      data += line.substr(6);
      has_data = true;
    } else {
      CHECK(line.starts_with(": ") || line.starts_with("event: "));
    }
  }
  return events;
}

}  // namespace

int fuzz_sse_writer(const uint8_t* bytes, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size);
  std::string stream;
  append_sse_comment(stream, text);
  append_sse_event(stream, "name", text);
  append_sse_event(stream, "", "last");
  const auto events = read_events(stream);
  CHECK(events.size() == 2);
  CHECK(events[0] == with_plain_line_breaks(text) && events[1] == "last");
  return 0;
}

}  // namespace deepinfer
