// SPDX-License-Identifier: MIT
#include "store/block_key.h"

#include <fmt/format.h>

#include <cstring>

#include "base/check.h"

namespace deepinfer {
namespace {

template <typename T>
void add_value(Sha256& hash, const T& value) {
  hash.update({reinterpret_cast<const uint8_t*>(&value), sizeof value});
}

// Lengths are hashed too, so that no two different field lists give the same bytes.
void add_field(Sha256& hash, const std::string& text) {
  add_value(hash, static_cast<uint64_t>(text.size()));
  hash.update({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
}

void add_media(Sha256& hash, std::span<const MediaSpan> media, int64_t begin) {
  for (const MediaSpan& span : media) {
    if (span.end <= begin || span.begin >= begin + kBlockKeyTokens) continue;
    add_value(hash, span.begin - begin);  // negative: the span began in an earlier block
    hash.update(span.digest);
  }
}

}  // namespace

std::string to_string(const BlockKey& key) { return fmt::format("{:016x}{:016x}", key.high, key.low); }

BlockKeyChain::BlockKeyChain(const KeyScope& scope) {
  Sha256 hash;
  add_field(hash, scope.tenant_salt);
  add_field(hash, scope.model_revision);
  add_value(hash, scope.cache_format);
  scope_digest_ = hash.finish();
}

const std::vector<BlockKey>& BlockKeyChain::extend(std::span<const TokenId> tokens, std::span<const MediaSpan> media) {
  static_assert(sizeof(TokenId) == 4);
  const int64_t num_blocks = static_cast<int64_t>(tokens.size()) / kBlockKeyTokens;
  if (num_blocks <= static_cast<int64_t>(keys_.size())) return keys_;
  static thread_local Sha256 hash;  // finish() leaves it as new
  for (int64_t i = static_cast<int64_t>(keys_.size()); i < num_blocks; ++i) {
    hash.update(scope_digest_);
    add_value(hash, keys_.empty() ? BlockKey{} : keys_.back());
    const auto block = tokens.subspan(static_cast<size_t>(i * kBlockKeyTokens), kBlockKeyTokens);
    hash.update({reinterpret_cast<const uint8_t*>(block.data()), block.size_bytes()});
    add_media(hash, media, i * kBlockKeyTokens);
    const Sha256Digest digest = hash.finish();
    BlockKey key;
    std::memcpy(&key.high, digest.data(), 8);
    std::memcpy(&key.low, digest.data() + 8, 8);
    keys_.push_back(key);
  }
  return keys_;
}

}  // namespace deepinfer
