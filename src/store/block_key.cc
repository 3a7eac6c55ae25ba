// SPDX-License-Identifier: MIT
#include "store/block_key.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <cstring>

#include "base/check.h"

namespace deepinfer {
namespace {

// One EVP context is reused for a whole chain: fetching the digest costs more than hashing a block.
class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) { restart(); }
  ~Sha256() { EVP_MD_CTX_free(context_); }
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void restart() { CHECK(EVP_DigestInit_ex(context_, EVP_sha256(), nullptr) == 1); }
  void add(const void* data, size_t size) { CHECK(EVP_DigestUpdate(context_, data, size) == 1); }
  // Lengths are hashed too, so that no two different field lists give the same bytes.
  void add_field(const std::string& text) {
    const uint64_t size = text.size();
    add(&size, sizeof size);
    add(text.data(), text.size());
  }
  Digest finish() {
    Digest digest;
    CHECK(EVP_DigestFinal_ex(context_, digest.data(), nullptr) == 1);
    restart();
    return digest;
  }

 private:
  EVP_MD_CTX* context_;
};

void add_media(Sha256& hash, std::span<const MediaSpan> media, int64_t begin) {
  for (const MediaSpan& span : media) {
    if (span.end <= begin || span.begin >= begin + kBlockKeyTokens) continue;
    const int64_t offset = span.begin - begin;  // negative: the span began in an earlier block
    hash.add(&offset, sizeof offset);
    hash.add(span.digest.data(), span.digest.size());
  }
}

}  // namespace

std::string to_string(const BlockKey& key) { return fmt::format("{:016x}{:016x}", key.high, key.low); }

BlockKeyChain::BlockKeyChain(const KeyScope& scope) {
  Sha256 hash;
  hash.add_field(scope.tenant_salt);
  hash.add_field(scope.model_revision);
  hash.add(&scope.cache_format, sizeof scope.cache_format);
  scope_digest_ = hash.finish();
}

const std::vector<BlockKey>& BlockKeyChain::extend(std::span<const TokenId> tokens, std::span<const MediaSpan> media) {
  static_assert(sizeof(TokenId) == 4);
  Sha256 hash;
  const int64_t num_blocks = static_cast<int64_t>(tokens.size()) / kBlockKeyTokens;
  for (int64_t i = static_cast<int64_t>(keys_.size()); i < num_blocks; ++i) {
    const BlockKey parent = keys_.empty() ? BlockKey{} : keys_.back();
    hash.add(scope_digest_.data(), scope_digest_.size());
    hash.add(&parent, sizeof parent);
    hash.add(tokens.data() + i * kBlockKeyTokens, kBlockKeyTokens * sizeof(TokenId));
    add_media(hash, media, i * kBlockKeyTokens);
    const Digest digest = hash.finish();
    BlockKey key;
    std::memcpy(&key.high, digest.data(), 8);
    std::memcpy(&key.low, digest.data() + 8, 8);
    keys_.push_back(key);
  }
  return keys_;
}

}  // namespace deepinfer
