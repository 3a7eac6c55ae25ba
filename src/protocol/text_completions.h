// SPDX-License-Identifier: MIT
// The plain Completions protocol (POST /v1/completions, DeepSeek's /beta/completions): a text or token prompt that is
// continued as it is, without template; with `suffix` a hole is filled. Not supported, and refused: several prompts,
// best_of, logprobs of an echoed prompt. Source: chat.md 5.4; OpenAI's text_completion object.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "protocol/codec.h"
#include "protocol/response_encoder.h"
#include "protocol/shape.h"

namespace deepinfer {

struct TextCompletionRequest {
  ChatRequest chat;  // options alone: its conversation is empty, thinking is off
  ResponseContext response;
  std::string prompt;                          // plain text
  std::optional<std::vector<TokenId>> tokens;  // instead of `prompt`; every id is checked against `vocab_size`
  std::optional<std::string> suffix;
  bool echo = false;  // the answer begins with the prompt
};

const Shape& text_completions_shape();

Refusal decode_text_completion(std::string_view body, const DecodeOptions& options, int64_t vocab_size,
                               TextCompletionRequest& out);

std::unique_ptr<ResponseEncoder> make_text_completions_encoder(const ResponseContext& context,
                                                               const ResponseIdentity& identity, std::string echo = "");

}  // namespace deepinfer
