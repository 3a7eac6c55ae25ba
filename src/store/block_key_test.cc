// SPDX-License-Identifier: MIT
#include "store/block_key.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

std::vector<TokenId> counting(int64_t n) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < n; ++i) tokens.push_back(static_cast<TokenId>(i % 1000));
  return tokens;
}
std::vector<BlockKey> keys_of(const KeyScope& scope, std::span<const TokenId> tokens,
                              std::span<const MediaSpan> media = {}) {
  return BlockKeyChain(scope).extend(tokens, media);
}
const KeyScope kScope{.tenant_salt = "a", .model_revision = "m", .cache_format = 1};

}  // namespace

TEST(BlockKey, NamesFullBlocksOnly) {
  EXPECT_EQ(keys_of(kScope, counting(127)).size(), 0u);
  EXPECT_EQ(keys_of(kScope, counting(300)).size(), 2u);
}

TEST(BlockKey, DoesNotDependOnHowTheSequenceGrew) {
  const auto tokens = counting(1000);
  BlockKeyChain chain(kScope);
  for (size_t n = 0; n <= tokens.size(); n += 37) chain.extend(std::span(tokens).first(n));
  chain.extend(tokens);
  EXPECT_EQ(chain.keys(), keys_of(kScope, tokens));
}

TEST(BlockKey, AChainGoesOnBehindKeysOfAnEarlierOne) {
  const auto tokens = counting(1000);
  BlockKeyChain chain(kScope);
  chain.adopt(keys_of(kScope, std::span(tokens).first(500)));
  EXPECT_EQ(chain.extend(tokens), keys_of(kScope, tokens));
}

TEST(BlockKey, ChangesWithEveryTokenAndAllKeysAfterIt) {
  auto tokens = counting(512);
  const auto before = keys_of(kScope, tokens);
  tokens[130] += 1;
  const auto after = keys_of(kScope, tokens);
  EXPECT_EQ(before[0], after[0]);
  for (size_t i = 1; i < 4; ++i) EXPECT_NE(before[i], after[i]);
}

TEST(BlockKey, NeverCrossesTenantsModelsOrFormats) {
  const auto tokens = counting(128);
  const BlockKey key = keys_of(kScope, tokens)[0];
  KeyScope other = kScope;
  other.tenant_salt = "b";
  EXPECT_NE(keys_of(other, tokens)[0], key);
  other = kScope;
  other.model_revision = "n";
  EXPECT_NE(keys_of(other, tokens)[0], key);
  other = kScope;
  other.cache_format = 2;
  EXPECT_NE(keys_of(other, tokens)[0], key);
  // Field borders are part of the hash: "a" + "m" is not "am" + "".
  EXPECT_NE(keys_of({.tenant_salt = "am", .model_revision = "", .cache_format = 1}, tokens)[0], key);
}

TEST(BlockKey, ImagesWithEqualIdsAndDifferentBytesDiffer) {
  const auto tokens = counting(384);
  MediaSpan span{.begin = 100, .end = 200, .digest = {}};
  const auto first = keys_of(kScope, tokens, {&span, 1});
  span.digest[0] = 1;
  const auto second = keys_of(kScope, tokens, {&span, 1});
  for (size_t i = 0; i < 3; ++i) EXPECT_NE(first[i], second[i]) << i;
}

}  // namespace deepinfer
