// SPDX-License-Identifier: MIT
#include "chat/parameter_name.h"

#include <string_view>

#include "chat/json_escape.h"

namespace deepinfer {
namespace {

constexpr std::string_view kAttribute = " string=\"";

}  // namespace

void ParameterName::begin() {
  state_ = State::kBefore;
  has_space_ = false;
  num_matched_ = 0;
}

ParameterName::Outcome ParameterName::push(uint8_t byte, std::string& out) {
  switch (state_) {
    case State::kBefore: return push_before(byte, out);
    case State::kQuote: return push_after_quote(byte, out);
    case State::kAttribute: return push_attribute(byte, out);
    case State::kBare: return push_bare(byte, out);
    case State::kInside: break;
  }
  if (byte == '"') {
    state_ = State::kQuote;
    return Outcome::kReading;
  }
  if (byte == ' ') {
    state_ = State::kAttribute;
    has_quote_ = false;
    num_matched_ = 1;
    return Outcome::kReading;
  }
  append_json_escaped(out, byte);
  return Outcome::kReading;
}

ParameterName::Outcome ParameterName::push_before(uint8_t byte, std::string& out) {
  if (byte == '"') {
    out += '"';
    state_ = State::kInside;
    return Outcome::kReading;
  }
  state_ = State::kBare;
  if (!compatible_) out += '"';
  return push_bare(byte, out);
}

// A quote was read and is held: it closes the name, or belongs to it.
ParameterName::Outcome ParameterName::push_after_quote(uint8_t byte, std::string& out) {
  if (byte == ' ' && !has_space_) {
    out += "\": ";
    return Outcome::kName;
  }
  if (byte == ' ') {
    state_ = State::kAttribute;
    has_quote_ = true;
    num_matched_ = 1;
    return Outcome::kReading;
  }
  if (byte == '>' && !compatible_) {
    out += "\": ";
    return Outcome::kNoKind;
  }
  if (byte == '>') {  // the original goes on to the next space, raw
    out += "\">";
    state_ = State::kBare;
    return Outcome::kReading;
  }
  out += "\\\"";
  if (byte == '"') return Outcome::kReading;  // this one is held now
  state_ = State::kInside;
  append_json_escaped(out, byte);
  return Outcome::kReading;
}

ParameterName::Outcome ParameterName::push_attribute(uint8_t byte, std::string& out) {
  if (static_cast<uint8_t>(kAttribute[num_matched_]) == byte) {
    if (++num_matched_ < kAttribute.size()) return Outcome::kReading;
    out += "\": ";
    return Outcome::kName;
  }
  if (has_quote_) out += "\\\"";  // all that was held belongs to the name
  out += kAttribute.substr(0, num_matched_);
  has_space_ = true;
  state_ = State::kInside;
  return push(byte, out);
}

// A name without an opening quote. The original writes it raw; the tolerant reading makes it a key.
ParameterName::Outcome ParameterName::push_bare(uint8_t byte, std::string& out) {
  if (byte == ' ') {
    out += compatible_ ? ": " : "\": ";
    return Outcome::kName;
  }
  if (!compatible_ && byte == '>') {
    out += "\": ";
    return Outcome::kNoKind;
  }
  if (compatible_) {
    out += static_cast<char>(byte);
  } else {
    append_json_escaped(out, byte);
  }
  return Outcome::kReading;
}

void ParameterName::finish(std::string& out) {
  if (state_ == State::kQuote) out += '"';
  if (state_ != State::kAttribute) return;
  if (has_quote_) {
    out += "\": ";
  } else {
    out += kAttribute.substr(0, num_matched_);
  }
}

}  // namespace deepinfer
