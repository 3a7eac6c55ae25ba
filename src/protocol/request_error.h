// SPDX-License-Identifier: MIT
// Why a request is refused. The message is what the client reads; `param` is the path of the field at fault.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace deepinfer {

struct RequestError {
  // kParse: the body is no JSON or does not have the protocol's shape. kConvert: it does, but says something refused.
  enum class Stage { kParse, kConvert };
  int http_status = 400;
  std::string message;
  std::string param;  // "messages[3].content"; empty when no single field is at fault
  Stage stage = Stage::kConvert;
  // False when the words come from a JSON or schema library and are no part of any contract.
  bool exact = true;
};

// Nothing: the step went well.
using Refusal = std::optional<RequestError>;

inline Refusal refuse(std::string message, std::string param = "") {
  RequestError error;
  error.message = std::move(message);
  error.param = std::move(param);
  return error;
}

// Leaves the enclosing function (which returns a Refusal) when the expression refuses.
#define REFUSE_IF(expression)                                          \
  do {                                                                 \
    if (::deepinfer::Refusal refusal_ = (expression)) return refusal_; \
  } while (0)

}  // namespace deepinfer
