// SPDX-License-Identifier: MIT
// Server-sent events as bytes. Line breaks inside data become several data lines, so no text can end a frame early or
// begin a field. Any thread. Source: the WHATWG HTML standard, section 9.2.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

// `name` may be empty: the frame has no event line. A name holds no line break.
void append_sse_event(std::string& out, std::string_view name, std::string_view data);
// A line that clients skip; keeps proxies from closing a quiet connection.
void append_sse_comment(std::string& out, std::string_view text);

}  // namespace deepinfer
