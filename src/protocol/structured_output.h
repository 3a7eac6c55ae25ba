// SPDX-License-Identifier: MIT
// The fields by which vLLM's clients ask for a form of the answer: structured_outputs, and the older guided_json,
// guided_regex, guided_choice, guided_grammar; and SGLang's and llama.cpp's json_schema, regex, ebnf, grammar. They
// constrain the tokens and add nothing to the prompt. An extension of Chat Completions and plain completions; the
// original ignores them.
#pragma once

#include <vector>

#include "base/json.h"
#include "chat/chat_request.h"
#include "protocol/decode_options.h"
#include "protocol/request_error.h"
#include "protocol/shape.h"

namespace deepinfer {

std::vector<Shape::Field> structured_output_fields();

// Reads them into chat.inference: the constraint, or with tools what an answer without calls must be. Refuses more than
// one, one beside a response format, and parts that would have to be ignored. Call after settle_format().
Refusal read_structured_output(Json& request, const RequestLimits& limits, ChatRequest& chat);

}  // namespace deepinfer
