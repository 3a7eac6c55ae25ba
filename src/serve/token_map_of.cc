// SPDX-License-Identifier: MIT
#include "serve/token_map_of.h"

#include "base/utf8.h"
#include "tokenizer/byte_alphabet.h"

namespace deepinfer {

TokenMap token_map_of(const Tokenizer& tokenizer) {
  std::vector<TokenText> texts;
  texts.reserve(static_cast<size_t>(tokenizer.vocab_size()));
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const std::string_view bytes = tokenizer.token_bytes(id);
    std::string text = to_valid_utf8(bytes);
    const bool damaged = text.size() != bytes.size() || text.find("\uFFFD") != std::string::npos;
    texts.push_back({std::move(text), !damaged                   ? ""
                                      : tokenizer.is_control(id) ? std::string(bytes)
                                                                 : written_of_bytes(bytes)});
  }
  return make_token_map(texts);
}

}  // namespace deepinfer
