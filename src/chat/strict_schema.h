// SPDX-License-Identifier: MIT
// The closed form of a `strict` schema: a fixed set of keywords in a fixed order; every object lists all its properties
// as required and admits no others; `$defs` and `definitions` are kept. What the form does not know is dropped; what
// contradicts it is refused. Source: chat.md 3.1 (strict tools).
#pragma once

#include "base/json.h"
#include "base/status.h"

namespace deepinfer {

// Parameters of a strict tool; null means none. Errors: invalid_argument, the message is what the client reads.
Result<Json> strict_tool_parameters(const Json& parameters);
// Schema of a strict response format.
Result<Json> strict_response_schema(const Json& schema);

// True when the error text stems from reading the schema, not from the rules of the closed form.
bool is_schema_shape_error(const Status& status);

}  // namespace deepinfer
