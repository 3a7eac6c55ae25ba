// SPDX-License-Identifier: MIT
// The frame of the codec commands: one JSON object a line on standard input, one answer a line on standard output, in
// the same order. A bad line gives {"id"?, "error"} and the others go on; gzip input is not unpacked here.
#pragma once

#include <functional>
#include <istream>
#include <string>

#include "base/json.h"
#include "base/status.h"

namespace deepinfer {

constexpr size_t kLineBytesMax = size_t{256} << 20;

// The next line without its end. What a line has beyond `bytes_max` is read past and `is_cut` says so: then `line`
// holds its beginning. False at the end of input, or interrupted within a line that is too long.
bool read_line(std::istream& in, size_t bytes_max, std::string& line, bool& is_cut);

// `answer` fills an object that already holds the request's "id". Duplicate keys: the last value counts.
void answer_json_lines(const std::function<Status(const Json& request, Json& out)>& answer);

}  // namespace deepinfer
