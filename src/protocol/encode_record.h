// SPDX-License-Identifier: MIT
// One request of a JSON-lines file taken all the way to token ids: what `deepinfer encode` does with a line, and what
// the golden records are compared with. In: {"protocol", "request" | "request_text", "options"?, "context_limit"?}.
// Out: prompt, special ranges, ids, settings, images, or {"error": {...}} for a refused request.
#pragma once

#include <map>
#include <memory>

#include "base/json.h"
#include "base/status.h"
#include "chat/prompt_encoder.h"
#include "protocol/codec.h"

namespace deepinfer {

class RecordEncoder {
 public:
  // Errors: not_found when the tokenizer lacks a control token.
  static Result<RecordEncoder> create(std::shared_ptr<const Tokenizer> tokenizer, bool recipe_compatible);

  // Errors: invalid_argument for a record (not a request) of another form.
  Result<Json> encode(const Json& record) const;

 private:
  explicit RecordEncoder(std::shared_ptr<const Tokenizer> tokenizer, ControlTokens tokens, bool recipe_compatible)
      : tokenizer_(std::move(tokenizer)), tokens_(std::move(tokens)), recipe_compatible_(recipe_compatible) {}

  std::shared_ptr<const Tokenizer> tokenizer_;
  ControlTokens tokens_;
  bool recipe_compatible_;
};

}  // namespace deepinfer
