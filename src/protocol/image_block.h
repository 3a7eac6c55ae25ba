// SPDX-License-Identifier: MIT
// Image blocks of the three protocols -> ImageSource, with each protocol's checks and words. Nothing is fetched or decoded
// here beyond the check that the bytes are base64. Source: chat.md 7.1.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "chat/chat_request.h"
#include "protocol/decode_options.h"
#include "protocol/request_error.h"

namespace deepinfer {

// `path` is where error messages place the image. Values are moved out of the block.

// Chat: {"type":"image_url","image_url":{"url","detail"}}; `block_idx` counts the blocks of its message.
Refusal read_image_url(Json& block, const std::string& path, size_t block_idx, ImageSource& out);
// Chat: {"type":"file","file_data",...}.
Refusal read_file(Json& block, const std::string& path, ImageSource& out);
// Responses: {"type":"input_image","image_url","detail","file_id"}; `block_path` is path plus the block's index.
Refusal read_input_image(Json& block, const std::string& path, const std::string& block_path, ImageSource& out);
// Messages: {"type":"image","source":{...}}.
Refusal read_image(Json& block, const std::string& path, ImageSource& out);

// Limits on the number and size of all images of a request, in conversation order.
Refusal check_image_limits(const std::vector<Message>& messages, const RequestLimits& limits);

}  // namespace deepinfer
