// SPDX-License-Identifier: MIT
// The JSON settings of the C ABI to the structs of protocol and chat. Errors of all: invalid_argument that names the
// member. Any thread.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "chat/chat_request.h"
#include "protocol/decode_options.h"

namespace deepinfer {

struct CodecSettings {
  DecodeOptions options;
  uint64_t context_limit = 0;
};
Result<CodecSettings> read_codec_settings(const char* data, size_t size);

struct StreamSettings {
  std::string response_id, model, signature;
  int64_t created_s = 0;
  bool has_call_id_seed = false;
  uint64_t call_id_seed = 0;
  ParsingOptions parsing;
};
// `model` and `parsing` are the request's, for members that are absent.
Result<StreamSettings> read_stream_settings(const char* data, size_t size, std::string_view model,
                                            const ParsingOptions& parsing);

}  // namespace deepinfer
