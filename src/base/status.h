// SPDX-License-Identifier: MIT
// Errors are values. A message says what was expected, what came, where, and what to do.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace deepinfer {

enum class StatusCode {
  kOk,
  kInvalidArgument,
  kNotFound,
  kCorruption,
  kResourceExhausted,
  kUnavailable,
  kUnimplemented,
  kInternal
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(StatusCode code, std::string message) : code_(code), message_(std::move(message)) {}
  bool ok() const { return code_ == StatusCode::kOk; }
  StatusCode code() const { return code_; }
  const std::string& message() const { return message_; }
  // The same error with `where` put before the message: "shard 3: header: ...".
  Status prefixed(const std::string& where) const { return ok() ? *this : Status(code_, where + ": " + message_); }

 private:
  StatusCode code_ = StatusCode::kOk;
  std::string message_;
};

const char* to_string(StatusCode code);
Status invalid_argument(std::string message);
Status not_found(std::string message);
Status corruption(std::string message);
Status resource_exhausted(std::string message);
Status unavailable(std::string message);
Status unimplemented(std::string message);
Status internal_error(std::string message);

template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}                                 // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) { CHECK(!status_.ok()); }  // NOLINT: implicit by design
  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & {
    CHECK(ok());
    return *value_;
  }
  const T& value() const& {
    CHECK(ok());
    return *value_;
  }
  T&& value() && {
    CHECK(ok());
    return std::move(*value_);
  }
  T* operator->() { return &value(); }
  T& operator*() { return value(); }

 private:
  Status status_;
  std::optional<T> value_;
};

#define TRY(expression)                                                                        \
  do {                                                                                         \
    if (::deepinfer::Status try_status_ = (expression); !try_status_.ok()) return try_status_; \
  } while (0)
#define DEEPINFER_JOIN2(a, b) a##b
#define DEEPINFER_JOIN(a, b) DEEPINFER_JOIN2(a, b)
#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_AS(DEEPINFER_JOIN(result_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_AS(result, declaration, expression) \
  auto result = (expression);                                \
  if (!result.ok()) return result.status();                  \
  declaration = std::move(result).value()

}  // namespace deepinfer
