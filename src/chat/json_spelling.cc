// SPDX-License-Identifier: MIT
#include "chat/json_spelling.h"

#include <charconv>
#include <cmath>

namespace deepinfer {

namespace {

// Shortest digits without the point, and the decimal exponent of the first one: 0.00123 -> "123", -3.
struct Decimal {
  std::string digits;
  int exponent = 0;
};

Decimal shortest_decimal(double magnitude) {
  char buffer[40];
  const char* end = std::to_chars(buffer, buffer + sizeof buffer, magnitude, std::chars_format::scientific).ptr;
  Decimal decimal;
  const char* at = buffer;
  for (; at != end && *at != 'e'; ++at)
    if (*at != '.') decimal.digits.push_back(*at);
  if (at != end) std::from_chars(at + (at[1] == '+' ? 2 : 1), end, decimal.exponent);
  return decimal;
}

void append_fixed(std::string& out, const Decimal& decimal) {
  const int num_digits = static_cast<int>(decimal.digits.size());
  if (decimal.exponent < 0) {
    out += "0.";
    out.append(static_cast<size_t>(-decimal.exponent - 1), '0');
    out += decimal.digits;
  } else if (num_digits <= decimal.exponent + 1) {
    out += decimal.digits;
    out.append(static_cast<size_t>(decimal.exponent + 1 - num_digits), '0');
    out += ".0";
  } else {
    out.append(decimal.digits, 0, static_cast<size_t>(decimal.exponent + 1));
    out.push_back('.');
    out.append(decimal.digits, static_cast<size_t>(decimal.exponent + 1));
  }
}

void append_scientific(std::string& out, const Decimal& decimal, bool two_exponent_digits) {
  out.push_back(decimal.digits[0]);
  if (decimal.digits.size() > 1) out.append(".").append(decimal.digits, 1);
  out += decimal.exponent < 0 ? "e-" : "e+";
  const int magnitude = std::abs(decimal.exponent);
  if (two_exponent_digits && magnitude < 10) out.push_back('0');
  out += std::to_string(magnitude);
}

void append_double(std::string& out, double value, NumberSpelling spelling) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  if (std::signbit(value)) out.push_back('-');
  if (value == 0) {
    out += "0.0";
    return;
  }
  const Decimal decimal = shortest_decimal(std::fabs(value));
  const bool python = spelling == NumberSpelling::kPython;
  if (decimal.exponent >= (python ? -4 : -5) && decimal.exponent < 16) append_fixed(out, decimal);
  else append_scientific(out, decimal, python);
}

}  // namespace

void append_spelled_json(std::string& out, const Json& value, const JsonSpelling& spelling) {
  const std::string_view comma = spelling.spaces ? ", " : ",";
  switch (value.kind()) {
    case Json::Kind::kDouble: append_double(out, value.as_double(), spelling.numbers); return;
    case Json::Kind::kArray: {
      out.push_back('[');
      bool first = true;
      for (const Json& item : value.as_array()) {
        if (!first) out += comma;
        first = false;
        append_spelled_json(out, item, spelling);
      }
      out.push_back(']');
      return;
    }
    case Json::Kind::kObject: {
      out.push_back('{');
      bool first = true;
      for (const auto& [key, item] : value.as_object()) {
        if (!first) out += comma;
        first = false;
        append_json_string(out, key);
        out += spelling.spaces ? ": " : ":";
        append_spelled_json(out, item, spelling);
      }
      out.push_back('}');
      return;
    }
    default: append_json(out, value);
  }
}

std::string spelled_json(const Json& value, const JsonSpelling& spelling) {
  std::string out;
  append_spelled_json(out, value, spelling);
  return out;
}

Result<Json> parse_spelled_json(std::string_view text) {
  JsonLimits limits;
  limits.refuse_duplicate_keys = false;
  limits.wide_integers = true;
  limits.depth_max = 127;
  return parse_json(text, limits);
}

}  // namespace deepinfer
