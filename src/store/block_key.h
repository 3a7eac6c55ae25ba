// SPDX-License-Identifier: MIT
// Identity of one 128-token block of global KV: a hash chain, so a key names everything before it too (decision 14).
//   key_i = first 128 bits of SHA-256( scope digest, key_{i-1}, 128 token ids, media digests inside the block )
//   scope digest = SHA-256( tenant salt, model revision, cache format ); key_{-1} = 0
// Two prompts share a block exactly when they agree on all of it. Internal ids are never taken from clients.
// Thread: values.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/sha256.h"

namespace deepinfer {

inline constexpr int64_t kBlockKeyTokens = 128;

struct BlockKey {
  uint64_t high = 0, low = 0;
  auto operator<=>(const BlockKey&) const = default;
};

std::string to_string(const BlockKey& key);  // 32 hex digits

struct BlockKeyHash {  // keys are uniform already
  size_t operator()(const BlockKey& key) const { return static_cast<size_t>(key.low); }
};

// Who may share, and what the bytes mean.
struct KeyScope {
  std::string tenant_salt;     // secret per tenant; equal salts share
  std::string model_revision;  // digest of the checkpoint
  uint32_t cache_format = 1;   // version of the block's byte layout
};

// An image span: all its positions carry the same token id, so its content is named by the canvas digest.
struct MediaSpan {
  int64_t begin = 0, end = 0;  // positions, half-open
  Sha256Digest digest{};
};

class BlockKeyChain {
 public:
  explicit BlockKeyChain(const KeyScope& scope);

  // Keys of the full blocks of `tokens`, appended to the chain; a trailing partial block has no key yet. `tokens` is
  // the whole sequence from position 0 on; blocks that were keyed in an earlier call are not hashed again.
  const std::vector<BlockKey>& extend(std::span<const TokenId> tokens, std::span<const MediaSpan> media = {});
  // Goes on behind keys that a chain of the same scope gave for the same tokens.
  void adopt(std::vector<BlockKey> keys) { keys_.assign(keys.begin(), keys.end()); }
  const std::vector<BlockKey>& keys() const { return keys_; }
  std::vector<BlockKey> take_keys() { return std::exchange(keys_, {}); }  // the chain begins anew
  void reserve(int64_t num_tokens) { keys_.reserve(static_cast<size_t>(num_tokens / kBlockKeyTokens)); }

 private:
  Sha256Digest scope_digest_;
  std::vector<BlockKey> keys_;
};

}  // namespace deepinfer
