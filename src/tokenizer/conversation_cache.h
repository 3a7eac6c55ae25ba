// SPDX-License-Identifier: MIT
// Remembers the ids of the text of one conversation, so that encoding its next turn tokenises the new text only. The
// ids equal Tokenizer::encode(prompt). Texts are kept in pieces cut where no token can span; those the latest prompt
// did not use are dropped, so the memory is that of one prompt. Thread: one owner.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/thread_pool.h"
#include "tokenizer/prompt.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

class ConversationCache {
 public:
  explicit ConversationCache(std::shared_ptr<const Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  std::vector<TokenId> encode(const Prompt& prompt);

  int64_t num_bytes_encoded() const { return num_bytes_encoded_; }  // by the latest call; the rest was remembered
  int64_t num_bytes_held() const;

 private:
  struct Entry {
    std::vector<TokenId> ids;
    uint64_t turn = 0;  // the latest call that used it
  };
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  void encode_chunk(std::string_view chunk, std::vector<TokenId>& out);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::unordered_map<std::string, Entry, Hash, std::equal_to<>> entries_;
  uint64_t turn_ = 0;
  int64_t num_bytes_encoded_ = 0;
};

}  // namespace deepinfer
