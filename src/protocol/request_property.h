// SPDX-License-Identifier: MIT
// What the fuzz targets of the three decoders assert. The first byte of the data chooses recipe compatibility and web
// search.
#pragma once

#include <string>
#include <string_view>

#include "base/check.h"
#include "base/utf8.h"
#include "chat/prompt_encoder.h"
#include "protocol/codec.h"

namespace deepinfer {

inline std::shared_ptr<const Tokenizer> golden_tokenizer() {
  auto tokenizer = Tokenizer::load(std::string(DEEPINFER_TESTDATA) + "/codec/tokenizer_v41.json.gz");
  CHECK(tokenizer.ok());
  return tokenizer.value();
}

// A refusal has a message of valid UTF-8 and a 4xx status. An accepted request renders; its ids hold exactly the
// control tokens that the template wrote: no text of the client's became one.
inline int check_request(const char* protocol, const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  DecodeOptions options;
  options.recipe_compatible = (data[0] & 1) != 0;
  options.messages_web_search = (data[0] & 2) != 0 ? WebSearch::kDrop : WebSearch::kReject;
  const Codec* codec = find_codec(protocol);
  DecodedRequest request;
  if (const Refusal refusal =
          codec->decode(std::string_view(reinterpret_cast<const char*>(data) + 1, size - 1), options, request)) {
    CHECK(refusal->http_status >= 400 && refusal->http_status < 500);
    CHECK(!refusal->message.empty() && is_valid_utf8(refusal->message) && is_valid_utf8(refusal->param));
    return 0;
  }
  static const std::shared_ptr<const Tokenizer> kTokenizer = golden_tokenizer();
  static const ControlTokens kControls = ControlTokens::find(*kTokenizer, PromptVersion::kV41).value();
  const auto encoded = encode_prompt(request.chat.conversation, {request.chat.version}, kControls);
  CHECK(encoded.ok());
  std::vector<TokenId> written, found;
  for (const Prompt::Piece& piece : encoded.value().prompt.pieces)
    if (piece.is_control) written.push_back(piece.id);
  for (const TokenId id : kTokenizer->encode(encoded.value().prompt))
    if (kTokenizer->is_control(id)) found.push_back(id);
  CHECK(written == found);
  CHECK(is_valid_utf8(render(encoded.value().prompt).text));
  return 0;
}

}  // namespace deepinfer
