// SPDX-License-Identifier: MIT
#include "bindings/c/c_boundary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/utf8.h"

namespace deepinfer {

deepinfer_code code_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return DEEPINFER_OK;
    case StatusCode::kInvalidArgument: return DEEPINFER_INVALID_ARGUMENT;
    case StatusCode::kNotFound: return DEEPINFER_NOT_FOUND;
    case StatusCode::kCorruption: return DEEPINFER_CORRUPTION;
    case StatusCode::kResourceExhausted: return DEEPINFER_RESOURCE_EXHAUSTED;
    case StatusCode::kUnavailable: return DEEPINFER_UNAVAILABLE;
    case StatusCode::kUnimplemented: return DEEPINFER_UNIMPLEMENTED;
    case StatusCode::kInternal: return DEEPINFER_INTERNAL;
  }
  return DEEPINFER_INTERNAL;
}

deepinfer_code report(deepinfer_error* error, deepinfer_code code, std::string_view message) {
  if (error == nullptr) return code;
  error->code = code;
  const size_t room = sizeof(error->message) - 1;
  size_t size = std::min(message.size(), room);
  // A message may quote bytes that are no UTF-8, so the cut looks at continuation bytes only.
  if (size < message.size()) {
    while (size > room - 4 && (static_cast<uint8_t>(message[size]) & 0xC0) == 0x80) --size;
  }
  if (size > 0) std::memcpy(error->message, message.data(), size);
  error->message[size] = '\0';
  return code;
}

deepinfer_code report(deepinfer_error* error, const Status& status) {
  return report(error, code_of(status), status.message());
}

Result<std::string_view> text_argument(const char* what, const char* data, size_t size, size_t bytes_max) {
  if (size > bytes_max) {
    return resource_exhausted(fmt::format("{}: {} bytes, at most {} are accepted", what, size, bytes_max));
  }
  if (data == nullptr && size > 0) return invalid_argument(fmt::format("{}: NULL with size {}", what, size));
  return data == nullptr ? std::string_view() : std::string_view(data, size);
}

Result<std::span<const int32_t>> ids_argument(const int32_t* ids, size_t num_ids) {
  if (num_ids > DEEPINFER_IDS_MAX) {
    return resource_exhausted(fmt::format("ids: {} given, at most {} are accepted", num_ids, DEEPINFER_IDS_MAX));
  }
  if (ids == nullptr && num_ids > 0) return invalid_argument(fmt::format("ids: NULL with size {}", num_ids));
  return std::span<const int32_t>(ids, num_ids);
}

Result<Json> settings_argument(const char* data, size_t size, std::span<const std::string_view> names) {
  ASSIGN_OR_RETURN(const std::string_view text, text_argument("settings", data, size, DEEPINFER_SETTINGS_BYTES_MAX));
  if (text.empty()) return Json(Json::Object{});
  Result<Json> settings = parse_json(text, {.depth_max = 16});
  if (!settings.ok()) return settings.status().prefixed("settings");
  if (!settings->is_object()) {
    return invalid_argument(fmt::format("settings: expected an object, found {}", to_string(settings->kind())));
  }
  for (const auto& [name, value] : settings->as_object()) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return invalid_argument(fmt::format("settings.{}: no such setting; known: {}", name, fmt::join(names, ", ")));
    }
  }
  return settings;
}

Result<std::string> text_setting(const Json& settings, std::string_view name, std::string_view fallback) {
  const Json* value = settings.find(name);
  if (value == nullptr) return std::string(fallback);
  if (!value->is_string()) {
    return invalid_argument(fmt::format("settings.{}: expected a string, found {}", name, to_string(value->kind())));
  }
  return value->as_string();
}

Result<uint64_t> count_setting(const Json& settings, std::string_view name, uint64_t fallback) {
  const Json* value = settings.find(name);
  if (value == nullptr) return fallback;
  if (!value->is_integer() || (value->kind() == Json::Kind::kInt && value->as_int() < 0)) {
    return invalid_argument(
        fmt::format("settings.{}: expected a whole number that is not negative, found {}", name, to_json(*value)));
  }
  return value->as_uint();
}

Status copy_to(std::string_view bytes, deepinfer_text& out) {
  char* data = static_cast<char*>(std::malloc(bytes.size() + 1));
  if (data == nullptr) return resource_exhausted(fmt::format("no memory for {} bytes", bytes.size()));
  if (!bytes.empty()) std::memcpy(data, bytes.data(), bytes.size());
  data[bytes.size()] = '\0';
  out = {data, bytes.size()};
  return {};
}

Status copy_to(std::span<const int32_t> ids, deepinfer_ids& out) {
  auto* data = static_cast<int32_t*>(std::malloc(std::max<size_t>(ids.size_bytes(), 1)));
  if (data == nullptr) return resource_exhausted(fmt::format("no memory for {} ids", ids.size()));
  if (!ids.empty()) std::memcpy(data, ids.data(), ids.size_bytes());
  out = {data, ids.size()};
  return {};
}

}  // namespace deepinfer
