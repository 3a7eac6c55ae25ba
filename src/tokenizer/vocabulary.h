// SPDX-License-Identifier: MIT
// The byte string of every token id, and back for ordinary tokens. All bytes lie in one block of memory.
// Immutable once built.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace deepinfer {

class Vocabulary {
 public:
  struct Token {
    TokenId id;
    std::string bytes;
    bool is_control = false;
    bool is_special = false;
  };
  // Preconditions: ids are distinct and >= 0; bytes of ordinary tokens are distinct.
  explicit Vocabulary(const std::vector<Token>& tokens);

  int64_t size() const { return static_cast<int64_t>(starts_.size()) - 1; }
  bool contains(TokenId id) const { return id >= 0 && id < size(); }
  std::string_view bytes(TokenId id) const {
    if (!contains(id)) return {};
    return std::string_view(memory_).substr(starts_[id], starts_[id + 1] - starts_[id]);
  }
  bool is_control(TokenId id) const { return contains(id) && (flags_[id] & kControl) != 0; }
  bool is_special(TokenId id) const { return contains(id) && (flags_[id] & kSpecial) != 0; }
  std::optional<TokenId> find(std::string_view bytes) const;  // ordinary tokens only

 private:
  static constexpr uint8_t kControl = 1, kSpecial = 2;

  std::string memory_;
  std::vector<uint32_t> starts_;  // by id, one more than ids
  std::vector<uint8_t> flags_;
  std::vector<TokenId> slots_;  // open addressing over the bytes of ordinary tokens; -1 = free
};

}  // namespace deepinfer
