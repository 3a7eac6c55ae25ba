// SPDX-License-Identifier: MIT
// The few JSON pieces that all answers share, appended to a string.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/range.h"
#include "chat/chat_event.h"

namespace deepinfer {

void append_number(std::string& out, uint64_t value);
void append_number(std::string& out, int64_t value);
// `,"key":` or, for values, `,"key":value`.
inline void append_member(std::string& out, std::string_view key, std::string_view value) {
  out += ",\"";
  out += key;
  out += "\":";
  append_json_string(out, value);
}
inline void append_member(std::string& out, std::string_view key, uint64_t value) {
  out += ",\"";
  out += key;
  out += "\":";
  append_number(out, value);
}

// The arguments of a call as the model wrote them, as a value; {} when they are no JSON (cut off, or malformed). Of
// repeated keys the last counts. True when they were JSON.
bool append_arguments(std::string& out, std::string_view arguments);

// A token's bytes as a JSON string. A token whose bytes are not valid UTF-8 is shown as \xNN escapes of all its bytes.
void append_token_text(std::string& out, std::string_view bytes);
// The log probabilities of one event as comma-separated objects {token, logprob, bytes, top_logprobs}.
void append_logprobs(std::string& out, const ChatEvents& events, Range logprobs);

}  // namespace deepinfer
