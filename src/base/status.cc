// SPDX-License-Identifier: MIT
#include "base/status.h"

namespace deepinfer {

const char* to_string(StatusCode code) {
  static constexpr const char* kNames[] = {
      "ok",          "invalid argument", "not found", "corruption", "resource exhausted",
      "unavailable", "unimplemented",    "internal"};
  return kNames[static_cast<int>(code)];
}
Status invalid_argument(std::string message) { return {StatusCode::kInvalidArgument, std::move(message)}; }
Status not_found(std::string message) { return {StatusCode::kNotFound, std::move(message)}; }
Status corruption(std::string message) { return {StatusCode::kCorruption, std::move(message)}; }
Status resource_exhausted(std::string message) { return {StatusCode::kResourceExhausted, std::move(message)}; }
Status unavailable(std::string message) { return {StatusCode::kUnavailable, std::move(message)}; }
Status unimplemented(std::string message) { return {StatusCode::kUnimplemented, std::move(message)}; }
Status internal_error(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

}  // namespace deepinfer
