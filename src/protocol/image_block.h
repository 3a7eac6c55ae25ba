// SPDX-License-Identifier: MIT
// Image blocks of the three protocols -> ImageSource, with each protocol's checks and words. Nothing is fetched or
// decoded here beyond the check that the bytes are base64. Source: chat.md 7.1.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "chat/chat_request.h"
#include "protocol/decode_options.h"
#include "protocol/request_error.h"

namespace deepinfer {

// `path` is where error messages place the image. Values are moved out of the block.

// Chat and Responses check the blocks of a message in two passes: first what each block holds and the length of links,
// then the data URLs.

// Chat, first pass: {"type":"file","file_data",...}; what remains is an address as image_url holds one.
Refusal take_file(Json& block, const std::string& path, std::string& address);
// Chat, first pass: {"type":"image_url","image_url":{"url",...}}; `block_idx` counts the blocks of its message.
Refusal check_image_url(const Json& block, const std::string& path, size_t block_idx);
// Chat, second pass.
Refusal read_image_address(std::string address, const Json* detail, const std::string& path, ImageSource& out);
// Responses, first pass: {"type":"input_image","image_url","detail","file_id"}; `block_path` is path plus the block's
// index.
Refusal check_input_image(const Json& block, const std::string& block_path);
// Responses, second pass.
Refusal read_input_image(Json& block, const std::string& path, ImageSource& out);
// Messages: {"type":"image","source":{...}}; `block_path` is where error messages place it.
Refusal read_image(Json& block, const std::string& path, const std::string& block_path, ImageSource& out);

// Limits on the number and size of all images of a request, in conversation order.
Refusal check_image_limits(const std::vector<Message>& messages, const RequestLimits& limits);

}  // namespace deepinfer
