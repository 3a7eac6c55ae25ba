// SPDX-License-Identifier: MIT
// One request of a JSON-lines file taken all the way to token ids: what `deepinfer encode` does with a line, and what
// the golden records are compared with. In: {"protocol", "request" | "request_text", "options"?, "context_limit"?}.
// Out: prompt, special ranges, ids, settings, images, or {"error": {...}} for a refused request. The steps are public
// for callers that keep the request, as the bindings do.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/status.h"
#include "chat/prompt_encoder.h"
#include "protocol/codec.h"

namespace deepinfer {

inline constexpr uint64_t kDefaultContextTokens = 1'048'576;

// A body taken to ids. Can be moved, not copied: `images` points into `decoded`.
struct EncodedRequest {
  Refusal refusal;  // set: nothing below is
  DecodedRequest decoded;
  RenderedPrompt prompt;
  std::vector<TokenId> ids;
  std::vector<const ImageSource*> images;

  EncodedRequest() = default;
  EncodedRequest(EncodedRequest&&) = default;
  EncodedRequest& operator=(EncodedRequest&&) = default;
};

// Applies the members of a record's "options" (names as deepseek-recipe's ConversionOptions has them). Errors:
// invalid_argument that names the member.
Status apply_decode_options(const Json& members, DecodeOptions& options);

class RecordEncoder {
 public:
  // Errors: not_found when the tokenizer lacks a control token.
  static Result<RecordEncoder> create(std::shared_ptr<const Tokenizer> tokenizer, bool recipe_compatible);

  // Errors: invalid_argument for a record (not a request) of another form.
  Result<Json> encode(const Json& record) const;

  // The same in two steps. Errors: not_found when the tokenizer lacks a control token that the conversation needs.
  Result<EncodedRequest> encode_body(const Codec& codec, std::string_view body, const DecodeOptions& options) const;
  Result<EncodedRequest> encode_decoded(DecodedRequest decoded) const;  // of a request that was read or built
  Json record_of(const EncodedRequest& request, uint64_t context_limit) const;

 private:
  explicit RecordEncoder(std::shared_ptr<const Tokenizer> tokenizer, ControlTokens tokens, bool recipe_compatible)
      : tokenizer_(std::move(tokenizer)), tokens_(std::move(tokens)), recipe_compatible_(recipe_compatible) {}

  std::shared_ptr<const Tokenizer> tokenizer_;
  ControlTokens tokens_;
  bool recipe_compatible_;
};

}  // namespace deepinfer
