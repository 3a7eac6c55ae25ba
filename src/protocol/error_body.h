// SPDX-License-Identifier: MIT
// Error bodies. All protocols share OpenAI's shape, as the original does; Messages adds Anthropic's outer "type" so
// that its clients read theirs. Source: chat.md 3.1.
#pragma once

#include <string>

#include "protocol/request_error.h"

namespace deepinfer {

std::string openai_error_body(const RequestError& error, bool recipe_compatible);
std::string anthropic_error_body(const RequestError& error, bool recipe_compatible);

// The type of an error by its HTTP status: "invalid_request_error", "internal_error", ...
std::string error_type(int http_status);

}  // namespace deepinfer
