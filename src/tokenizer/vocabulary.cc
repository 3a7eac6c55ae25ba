// SPDX-License-Identifier: MIT
#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>
#include <functional>

namespace deepinfer {

Vocabulary::Vocabulary(const std::vector<Token>& tokens) {
  TokenId last = -1;
  size_t num_bytes = 0;
  for (const Token& token : tokens) {
    last = std::max(last, token.id);
    num_bytes += token.bytes.size();
  }
  std::vector<const Token*> by_id(static_cast<size_t>(last) + 1, nullptr);
  for (const Token& token : tokens) by_id[token.id] = &token;
  memory_.reserve(num_bytes);
  starts_.reserve(by_id.size() + 1);
  flags_.reserve(by_id.size());
  for (const Token* token : by_id) {
    starts_.push_back(static_cast<uint32_t>(memory_.size()));
    flags_.push_back(
        token == nullptr ? 0 : static_cast<uint8_t>(token->is_control * kControl + token->is_special * kSpecial));
    if (token != nullptr) memory_ += token->bytes;
  }
  starts_.push_back(static_cast<uint32_t>(memory_.size()));

  slots_.assign(std::bit_ceil(2 * by_id.size() + 2), -1);
  for (const Token* token : by_id) {
    if (token == nullptr || token->is_control) continue;
    size_t slot = std::hash<std::string_view>()(token->bytes) & (slots_.size() - 1);
    while (slots_[slot] >= 0) slot = (slot + 1) & (slots_.size() - 1);
    slots_[slot] = token->id;
  }
}

std::optional<TokenId> Vocabulary::find(std::string_view wanted) const {
  size_t slot = std::hash<std::string_view>()(wanted) & (slots_.size() - 1);
  for (; slots_[slot] >= 0; slot = (slot + 1) & (slots_.size() - 1))
    if (bytes(slots_[slot]) == wanted) return slots_[slot];
  return std::nullopt;
}

}  // namespace deepinfer
