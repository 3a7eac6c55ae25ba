// SPDX-License-Identifier: MIT
#include "base/json.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <charconv>
#include <cmath>
#include <unordered_set>

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

struct Builder {
  const JsonLimits& limits;
  Status status;

  Json build(simdjson::dom::element element, std::string& path) {
    using Type = simdjson::dom::element_type;
    switch (element.type()) {
      case Type::NULL_VALUE: return nullptr;
      case Type::BOOL: return bool(element);
      case Type::INT64: return int64_t(element);
      case Type::UINT64: return uint64_t(element);
      case Type::DOUBLE: return double(element);
      case Type::STRING: return std::string(std::string_view(element));
      case Type::ARRAY: return build_array(element, path);
      case Type::OBJECT: return build_object(element, path);
    }
    return nullptr;
  }

  Json build_array(simdjson::dom::array array, std::string& path) {
    Json::Array out;
    const size_t base = path.size();
    for (simdjson::dom::element item : array) {
      path += fmt::format("[{}]", out.size());
      out.push_back(build(item, path));
      path.resize(base);
      if (!status.ok()) break;
    }
    return out;
  }

  Json build_object(simdjson::dom::object object, std::string& path) {
    Json::Object out;
    std::unordered_set<std::string_view> seen;
    const size_t base = path.size();
    for (const simdjson::dom::key_value_pair member : object) {
      if (limits.refuse_duplicate_keys && !seen.insert(member.key).second) {
        status = invalid_argument(
            fmt::format("JSON: duplicate key \"{}\" in {}", member.key, path.empty() ? "the root object" : path));
        break;
      }
      path += fmt::format("{}{}", base ? "." : "", member.key);
      out.emplace_back(std::string(member.key), build(member.value, path));
      path.resize(base);
      if (!status.ok()) break;
    }
    return out;
  }
};

}  // namespace

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes_max)
    return resource_exhausted(fmt::format("JSON: {} bytes, at most {} are accepted", text.size(), limits.bytes_max));
  simdjson::dom::parser parser(std::max<size_t>(limits.bytes_max, 64));
  simdjson::dom::element root;
  simdjson::error_code error = parser.allocate(std::max<size_t>(text.size(), 64), limits.depth_max);
  const simdjson::padded_string padded(text);
  if (!error) error = parser.parse(padded).get(root);
  if (error) return invalid_argument(fmt::format("JSON: {}", simdjson::error_message(error)));
  Builder builder{limits, {}};
  std::string path;
  Json value = builder.build(root, path);
  if (!builder.status.ok()) return builder.status;
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
