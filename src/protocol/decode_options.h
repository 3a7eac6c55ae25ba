// SPDX-License-Identifier: MIT
// What the operator decides about requests: model names, defaults, behaviours, limits. Read by every decoder.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "chat/chat_request.h"

namespace deepinfer {

// Every limit refuses with a message that names the field, what came and what is allowed.
struct RequestLimits {
  size_t body_bytes_max = size_t{100} << 20;
  size_t depth_max = 127;  // nested arrays and objects
  size_t messages_max = 100'000;
  size_t tools_max = 4'096;
  size_t tool_schema_bytes_max = size_t{1} << 20;  // one tool's parameters or one response schema, as compact JSON
  size_t images_max = 600;
  size_t image_bytes_max = size_t{32} << 20;         // one decoded image
  size_t images_total_bytes_max = size_t{64} << 20;  // all decoded images of a request
  uint32_t n_max = 16;
};

enum class WebSearch { kDrop, kReject };
enum class MissingReasoning { kFillEmpty, kReject };

struct DecodeOptions {
  // Exact names a client may use. Aliases are further entries.
  std::map<std::string, PromptVersion> models = {{"DeepSeek-V4-Pro", PromptVersion::kV4},
                                                 {"DeepSeek-V4.1-Flash", PromptVersion::kV41}};
  bool default_thinking = true;
  MissingReasoning missing_reasoning = MissingReasoning::kFillEmpty;
  WebSearch responses_web_search = WebSearch::kDrop;
  WebSearch messages_web_search = WebSearch::kReject;
  uint32_t thinking_max_tokens = 393'216;  // largest accepted max_tokens
  uint32_t plain_max_tokens = 393'216;
  // Refuse what deepseek-recipe 0.2.0 refuses and resolve sampling as it does; its known defects are still repaired.
  bool recipe_compatible = false;
  RequestLimits limits;
};

}  // namespace deepinfer
