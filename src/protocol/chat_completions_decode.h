// SPDX-License-Identifier: MIT
// Chat Completions requests -> ChatRequest. Source: chat.md 3.2; decision 9 for what goes beyond.
#pragma once

#include <string_view>

#include "protocol/codec.h"
#include "protocol/shape.h"

namespace deepinfer {

Refusal decode_chat_completions(std::string_view body, const DecodeOptions& options, DecodedRequest& out);

const Shape& chat_completions_shape(bool recipe_compatible);

}  // namespace deepinfer
