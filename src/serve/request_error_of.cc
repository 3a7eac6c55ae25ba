// SPDX-License-Identifier: MIT
#include "serve/request_error_of.h"

#include "base/log.h"

namespace deepinfer {

RequestError request_error(int http_status, std::string message, std::string param) {
  RequestError error;
  error.http_status = http_status;
  error.message = std::move(message);
  error.param = std::move(param);
  return error;
}

RequestError request_error_of(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
    case StatusCode::kUnimplemented: return request_error(400, status.message());
    case StatusCode::kNotFound: return request_error(404, status.message());
    case StatusCode::kResourceExhausted:
    case StatusCode::kUnavailable: return request_error(503, status.message());
    default: break;
  }
  log_line(LogLevel::kError, "request failed", {{"status", to_string(status.code())}, {"reason", status.message()}});
  return request_error(500, "The server failed to process the request.");
}

}  // namespace deepinfer
