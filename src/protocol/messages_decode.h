// SPDX-License-Identifier: MIT
// Anthropic Messages requests -> ChatRequest. Source: chat.md 3.4; decision 9 for what goes beyond.
#pragma once

#include <string_view>

#include "protocol/codec.h"
#include "protocol/shape.h"

namespace deepinfer {

Refusal decode_messages(std::string_view body, const DecodeOptions& options, DecodedRequest& out);

const Shape& messages_shape(bool recipe_compatible);

}  // namespace deepinfer
