// SPDX-License-Identifier: MIT
// A conversation as JSON and back, for callers that build or change one instead of sending a request. The form stands
// in deepinfer_codec.h. Reading refuses members of other names. Any thread.
#pragma once

#include "base/json.h"
#include "base/status.h"
#include "chat/chat_request.h"

namespace deepinfer {

Json json_of(const Conversation& conversation);
// Errors: invalid_argument with the path of the member.
Result<Conversation> read_conversation(const Json& value);

}  // namespace deepinfer
