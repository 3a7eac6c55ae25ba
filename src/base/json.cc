// SPDX-License-Identifier: MIT
#include "base/json.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <unordered_map>

#include "base/json_fault.h"

namespace deepinfer {

double Json::as_double() const {
  switch (kind()) {
    case Kind::kInt: return static_cast<double>(as_int());
    case Kind::kUint: return static_cast<double>(as_uint());
    default: return std::get<double>(value_);
  }
}

const Json* Json::find(std::string_view key) const {
  if (!is_object()) return nullptr;
  for (const Member& member : as_object())
    if (member.first == key) return &member.second;
  return nullptr;
}
Json* Json::find(std::string_view key) { return const_cast<Json*>(std::as_const(*this).find(key)); }

void Json::set(std::string_view key, Json value) {
  if (is_null()) value_ = Object{};
  if (Json* present = find(key)) *present = std::move(value);
  else as_object().emplace_back(std::string(key), std::move(value));
}

void Json::push_back(Json value) {
  if (is_null()) value_ = Array{};
  as_array().push_back(std::move(value));
}

bool Json::operator==(const Json& other) const {
  if (kind() != other.kind()) return false;
  if (!is_object()) return value_ == other.value_;
  if (as_object().size() != other.as_object().size()) return false;
  for (const Member& member : as_object()) {
    const Json* twin = other.find(member.first);
    if (!twin || !(*twin == member.second)) return false;
  }
  return true;
}

const char* to_string(Json::Kind kind) {
  static constexpr const char* kNames[] = {"null",   "boolean", "integer", "integer",
                                           "number", "string",  "array",   "object"};
  return kNames[static_cast<int>(kind)];
}

// ---- parsing

namespace {

// Builds the value from simdjson's tape. The path is spelled only on the way out of an error.
struct Builder {
  const JsonLimits& limits;
  Status status;
  std::string path;  // of the object with the duplicate key
  size_t depth = 0;

  Json build(simdjson::dom::element element) {
    using Type = simdjson::dom::element_type;
    const Type type = element.type();
    if (type != Type::ARRAY && type != Type::OBJECT) return build_scalar(element, type);
    if (depth == limits.depth_max) {
      status = invalid_argument(fmt::format("JSON: more than {} nested arrays and objects", limits.depth_max));
      return nullptr;
    }
    ++depth;
    Json value = type == Type::ARRAY ? build_array(element) : build_object(element);
    --depth;
    return value;
  }

  static Json build_scalar(simdjson::dom::element element, simdjson::dom::element_type type) {
    using Type = simdjson::dom::element_type;
    switch (type) {
      case Type::NULL_VALUE: return nullptr;
      case Type::BOOL: return bool(element);
      case Type::INT64: return int64_t(element);
      case Type::UINT64: return uint64_t(element);
      case Type::DOUBLE: return double(element);
      case Type::STRING: return Json(std::string_view(element));
      default: return nullptr;
    }
  }

  Json build_array(simdjson::dom::array array) {
    Json::Array out;
    out.reserve(array.size());
    for (simdjson::dom::element item : array) {
      out.push_back(build(item));
      if (status.ok()) continue;
      path.insert(0, fmt::format("[{}]{}", out.size() - 1, path.empty() || path.front() == '[' ? "" : "."));
      break;
    }
    return out;
  }

  Json build_object(simdjson::dom::object object) {
    Json::Object out;
    out.reserve(object.size());
    std::unordered_map<std::string_view, size_t> seen;  // only for wide objects: a short one is searched
    for (const simdjson::dom::key_value_pair member : object) {
      const size_t twin = find_twin(out, seen, member.key);
      if (twin < out.size() && limits.refuse_duplicate_keys) {
        status = invalid_argument(fmt::format("JSON: duplicate key \"{}\"", member.key));
        break;
      }
      Json value = build(member.value);
      if (twin < out.size()) out[twin].second = std::move(value);
      else out.emplace_back(std::string(member.key), std::move(value));
      if (status.ok()) continue;
      path.insert(0, path.empty() || path.front() == '[' ? std::string(member.key) : fmt::format("{}.", member.key));
      break;
    }
    return out;
  }

  // Index of the member named `key`; the number of members when there is none. Keys view the parser's memory.
  static size_t find_twin(const Json::Object& out, std::unordered_map<std::string_view, size_t>& seen,
                          std::string_view key) {
    static constexpr size_t kSearchedMembers = 16;
    if (out.size() >= kSearchedMembers) {
      if (seen.empty())
        for (size_t i = 0; i < out.size(); ++i) seen.emplace(out[i].first, i);
      return seen.emplace(key, out.size()).first->second;
    }
    for (size_t i = 0; i < out.size(); ++i)
      if (out[i].first == key) return i;
    return out.size();
  }
};

bool is_number_part(char c) {
  return (c >= '0' && c <= '9') || c == '+' || c == '-' || c == '.' || c == 'e' || c == 'E';
}

// True for an integer spelling that int64 and uint64 cannot hold, and for -0.
bool is_wide_integer(std::string_view number) {
  if (number.find_first_of(".eE") != std::string_view::npos) return false;
  if (number == "-0") return true;
  if (number.size() < 19) return false;
  int64_t small = 0;
  uint64_t large = 0;
  const char* end = number.data() + number.size();
  return std::from_chars(number.data(), end, small).ec == std::errc::result_out_of_range &&
         (number.front() == '-' || std::from_chars(number.data(), end, large).ec == std::errc::result_out_of_range);
}

// `text` with ".0" after every wide integer, so that it is read as a double.
std::string widen_integers(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 16);
  bool in_string = false;
  for (size_t i = 0; i < text.size();) {
    const char c = text[i];
    if (in_string || !(c == '-' || (c >= '0' && c <= '9'))) {
      if (c == '"') in_string = !in_string;
      const size_t length = in_string && c == '\\' ? std::min<size_t>(2, text.size() - i) : 1;
      out.append(text, i, length);
      i += length;
      continue;
    }
    size_t end = i;
    while (end < text.size() && is_number_part(text[end])) ++end;
    const std::string_view number = text.substr(i, end - i);
    out.append(number);
    if (is_wide_integer(number)) out += ".0";
    i = end;
  }
  return out;
}

// Cheap test whether widening can matter: "-0" that is no fraction, or a failed parse of some number.
bool may_hold_negative_zero(std::string_view text) {
  for (size_t at = text.find("-0"); at != std::string_view::npos; at = text.find("-0", at + 2))
    if (at + 2 == text.size() || !is_number_part(text[at + 2])) return true;
  return false;
}

}  // namespace

namespace {

// The parser's reason, and the place where a slower reader of the same grammar stops.
std::string describe_error(std::string_view text, simdjson::error_code error) {
  const size_t fault = find_json_fault(text);
  if (fault == std::string_view::npos) return fmt::format("JSON: {}", simdjson::error_message(error));
  return fmt::format("JSON: {} at {}", fault == text.size() ? "the text ends too early" : "unexpected byte",
                     describe_position(text, fault));
}

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max)
    return resource_exhausted(fmt::format("JSON: {} bytes, at most {} are accepted", text.size(), limits.bytes_max));
  simdjson::padded_string padded = limits.wide_integers && may_hold_negative_zero(text)
                                       ? simdjson::padded_string(widen_integers(text))
                                       : simdjson::padded_string(text);
  simdjson::dom::parser parser(std::max<size_t>(padded.size(), 64));
  simdjson::dom::element root;
  simdjson::error_code error =
      parser.allocate(std::max<size_t>(padded.size(), 64), limits.depth_max + 2);  // exact in Builder
  if (!error) error = parser.parse(padded).get(root);
  if (error == simdjson::NUMBER_ERROR && limits.wide_integers) {
    padded = simdjson::padded_string(widen_integers(text));
    const size_t capacity = std::max<size_t>(padded.size(), 64);  // as above: the parser refuses small ones
    parser = simdjson::dom::parser(capacity);
    error = parser.allocate(capacity, limits.depth_max + 2);
    if (!error) error = parser.parse(padded).get(root);
  }
  if (error) return invalid_argument(describe_error(text, error));
  Builder builder{limits, {}, {}};
  Json value = builder.build(root);
  if (!builder.status.ok())
    return invalid_argument(
        fmt::format("{} in {}", builder.status.message(), builder.path.empty() ? "the root object" : builder.path));
  return value;
}

// ---- writing

void append_json_string(std::string& out, std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  out.push_back('"');
  size_t plain = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c >= 0x20 && c != '"' && c != '\\') continue;
    out.append(text.substr(plain, i - plain));
    plain = i + 1;
    switch (c) {
      case '"': out += "\\\""; break;
      case '\\': out += "\\\\"; break;
      case '\n': out += "\\n"; break;
      case '\r': out += "\\r"; break;
      case '\t': out += "\\t"; break;
      case '\b': out += "\\b"; break;
      case '\f': out += "\\f"; break;
      default:
        out += "\\u00";
        out.push_back(kHex[c >> 4]);
        out.push_back(kHex[c & 15]);
    }
  }
  out.append(text.substr(plain));
  out.push_back('"');
}

void append_json_double(std::string& out, double value) {
  if (!std::isfinite(value)) {
    out += "null";
    return;
  }
  char buffer[32];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  out.append(text);
  if (text.find_first_of(".e") == std::string_view::npos) out += ".0";
}

namespace {

void append_break(std::string& out, const JsonStyle& style, int level) {
  if (style.indent == 0) return;
  out.push_back('\n');
  out.append(static_cast<size_t>(style.indent * level), ' ');
}

void append_value(std::string& out, const Json& value, const JsonStyle& style, int level) {
  const std::string_view comma = style.spaces && style.indent == 0 ? ", " : ",";
  const std::string_view colon = style.spaces || style.indent ? ": " : ":";
  switch (value.kind()) {
    case Json::Kind::kNull: out += "null"; return;
    case Json::Kind::kBool: out += value.as_bool() ? "true" : "false"; return;
    case Json::Kind::kInt: out += std::to_string(value.as_int()); return;
    case Json::Kind::kUint: out += std::to_string(value.as_uint()); return;
    case Json::Kind::kDouble: append_json_double(out, value.as_double()); return;
    case Json::Kind::kString: append_json_string(out, value.as_string()); return;
    case Json::Kind::kArray: {
      out.push_back('[');
      bool first = true;
      for (const Json& item : value.as_array()) {
        if (!first) out += comma;
        first = false;
        append_break(out, style, level + 1);
        append_value(out, item, style, level + 1);
      }
      if (!first) append_break(out, style, level);
      out.push_back(']');
      return;
    }
    case Json::Kind::kObject: {
      out.push_back('{');
      bool first = true;
      for (const auto& [key, item] : value.as_object()) {
        if (!first) out += comma;
        first = false;
        append_break(out, style, level + 1);
        append_json_string(out, key);
        out += colon;
        append_value(out, item, style, level + 1);
      }
      if (!first) append_break(out, style, level);
      out.push_back('}');
    }
  }
}

}  // namespace

void append_json(std::string& out, const Json& value, const JsonStyle& style) { append_value(out, value, style, 0); }
std::string to_json(const Json& value, const JsonStyle& style) {
  std::string out;
  append_json(out, value, style);
  return out;
}

}  // namespace deepinfer
