// SPDX-License-Identifier: MIT
#include "protocol/error_body.h"

#include "base/json.h"

namespace deepinfer {

namespace {

Json error_members(const RequestError& error, const std::string& type, bool recipe_compatible) {
  const bool names_field = !recipe_compatible && !error.param.empty();
  return Json::Object{
      {"message", error.message}, {"type", type}, {"param", names_field ? Json(error.param) : Json()}, {"code", type}};
}

std::string anthropic_type(int http_status) {
  switch (http_status) {
    case 413: return "request_too_large";
    case 500: return "api_error";
    case 503: return "overloaded_error";
    default: return error_type(http_status);
  }
}

}  // namespace

std::string error_type(int http_status) {
  switch (http_status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 404: return "not_found_error";
    case 429: return "rate_limit_error";
    case 503: return "service_unavailable_error";
    default: return http_status >= 500 ? "internal_error" : "invalid_request_error";
  }
}

std::string openai_error_body(const RequestError& error, bool recipe_compatible) {
  return to_json(Json(Json::Object{{"error", error_members(error, error_type(error.http_status), recipe_compatible)}}));
}

std::string anthropic_error_body(const RequestError& error, bool recipe_compatible) {
  if (recipe_compatible) return openai_error_body(error, true);
  return to_json(
      Json(Json::Object{{"type", "error"}, {"error", error_members(error, anthropic_type(error.http_status), false)}}));
}

}  // namespace deepinfer
