// SPDX-License-Identifier: MIT
// Responses requests -> ChatRequest. Source: chat.md 3.3; decision 9 for what goes beyond.
#pragma once

#include <string_view>

#include "protocol/codec.h"
#include "protocol/shape.h"

namespace deepinfer {

Refusal decode_responses(std::string_view body, const DecodeOptions& options, DecodedRequest& out);

const Shape& responses_shape(bool recipe_compatible);

}  // namespace deepinfer
