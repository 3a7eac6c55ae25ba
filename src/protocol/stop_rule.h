// SPDX-License-Identifier: MIT
// Stop sequences of Chat (`stop`) and Messages (`stop_sequences`): a text or a list of at most 16. Source: chat.md 3.2.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "protocol/request_error.h"

namespace deepinfer {

// `stop` may be null.
Refusal read_stop_sequences(Json* stop, std::vector<std::string>& out);

}  // namespace deepinfer
