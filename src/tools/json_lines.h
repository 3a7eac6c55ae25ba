// SPDX-License-Identifier: MIT
// The frame of the codec commands: one JSON object a line on standard input, one answer a line on standard output, in
// the same order. A bad line gives {"id"?, "error"} and the others go on; gzip input is not unpacked here.
#pragma once

#include <functional>

#include "base/json.h"
#include "base/status.h"

namespace deepinfer {

// `answer` fills an object that already holds the request's "id". Duplicate keys: the last value counts.
void answer_json_lines(const std::function<Status(const Json& request, Json& out)>& answer);

}  // namespace deepinfer
