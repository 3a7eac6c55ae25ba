// SPDX-License-Identifier: MIT
// JSON as an ordered value. Parsing is strict RFC 8259 (simdjson), keeps key order, tells integers from doubles, and
// has limits for bytes and depth; duplicate keys are refused by default. Writing is compact and deterministic.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace deepinfer {

class Json {
 public:
  using Array = std::vector<Json>;
  using Member = std::pair<std::string, Json>;
  using Object = std::vector<Member>;  // in source order
  enum class Kind { kNull, kBool, kInt, kUint, kDouble, kString, kArray, kObject };

  Json() = default;
  Json(std::nullptr_t) {}                                   // NOLINT: implicit by design, as are the others
  Json(bool value) : value_(value) {}                       // NOLINT
  Json(int value) : value_(static_cast<int64_t>(value)) {}  // NOLINT
  Json(int64_t value) : value_(value) {}                    // NOLINT
  Json(uint64_t value) {
    if (value > INT64_MAX) value_ = value;
    else value_ = static_cast<int64_t>(value);
  }                                                             // NOLINT
  Json(double value) : value_(value) {}                         // NOLINT
  Json(const char* value) : value_(std::string(value)) {}       // NOLINT
  Json(std::string value) : value_(std::move(value)) {}         // NOLINT
  Json(std::string_view value) : value_(std::string(value)) {}  // NOLINT
  Json(Array value) : value_(std::move(value)) {}               // NOLINT
  Json(Object value) : value_(std::move(value)) {}              // NOLINT

  Kind kind() const { return static_cast<Kind>(value_.index()); }
  bool is_null() const { return kind() == Kind::kNull; }
  bool is_bool() const { return kind() == Kind::kBool; }
  bool is_string() const { return kind() == Kind::kString; }
  bool is_array() const { return kind() == Kind::kArray; }
  bool is_object() const { return kind() == Kind::kObject; }
  bool is_integer() const {
    return kind() == Kind::kInt || kind() == Kind::kUint;
  }  // written without fraction or exponent
  bool is_number() const { return is_integer() || kind() == Kind::kDouble; }

  // Precondition for all: the kind matches.
  bool as_bool() const { return std::get<bool>(value_); }
  int64_t as_int() const { return std::get<int64_t>(value_); }  // kInt only: a kUint exceeds int64
  uint64_t as_uint() const {
    return kind() == Kind::kUint ? std::get<uint64_t>(value_) : static_cast<uint64_t>(as_int());
  }
  double as_double() const;  // any number
  const std::string& as_string() const { return std::get<std::string>(value_); }
  std::string& as_string() { return std::get<std::string>(value_); }
  const Array& as_array() const { return std::get<Array>(value_); }
  Array& as_array() { return std::get<Array>(value_); }
  const Object& as_object() const { return std::get<Object>(value_); }
  Object& as_object() { return std::get<Object>(value_); }

  // First member of that name; nullptr when absent or when this is no object.
  const Json* find(std::string_view key) const;
  Json* find(std::string_view key);
  // Replaces the member or appends it. Makes a null value an object.
  void set(std::string_view key, Json value);
  void push_back(Json value);  // makes a null value an array

  // Same kind and value; objects compare without regard to member order; 1 and 1.0 differ.
  bool operator==(const Json& other) const;

 private:
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, Array, Object> value_;
};

const char* to_string(Json::Kind kind);

struct JsonLimits {
  size_t bytes_max = size_t{64} << 20;
  size_t depth_max = 128;
  bool refuse_duplicate_keys = true;  // false: the first position with the last value
  // True: integers beyond int64 and uint64, and -0, are read as doubles instead of being refused (read as 0).
  bool wide_integers = false;
};

// Errors: invalid_argument with the byte offset or the path of a duplicate key.
Result<Json> parse_json(std::string_view text, const JsonLimits& limits = {});

struct JsonStyle {
  bool spaces = false;  // ", " and ": " after separators, as Python's json.dumps writes
  int indent = 0;       // > 0: one member a line
};

// Non-ASCII stays as it is; control characters, quote and backslash are escaped; doubles in the shortest form that
// reads back, always with a fraction or an exponent.
void append_json(std::string& out, const Json& value, const JsonStyle& style = {});
std::string to_json(const Json& value, const JsonStyle& style = {});
void append_json_string(std::string& out, std::string_view text);  // with the quotes
void append_json_double(std::string& out, double value);

}  // namespace deepinfer
