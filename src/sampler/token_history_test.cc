// SPDX-License-Identifier: MIT
#include "sampler/token_history.h"

#include <gtest/gtest.h>

#include <map>

#include "base/philox.h"

namespace deepinfer {
namespace {

TEST(TokenHistory, CountsLikeAPlainMap) {
  Rng rng(4);
  TokenHistory history;
  std::map<TokenId, std::pair<bool, int>> want;
  std::vector<TokenId> prompt;
  for (int i = 0; i < 3000; ++i) prompt.push_back(static_cast<TokenId>(rng.below(129280)));
  history.append_prompt(prompt);
  for (const TokenId id : prompt) want[id].first = true;
  for (int i = 0; i < 3000; ++i) {
    const TokenId id = static_cast<TokenId>(rng.below(500));
    history.append_output(id);
    ++want[id].second;
  }
  int64_t num_entries = 0;
  for (const auto& entry : history.entries())
    if (entry.id >= 0) {
      ++num_entries;
      EXPECT_EQ(entry.is_in_prompt, want[entry.id].first);
      EXPECT_EQ(entry.num_outputs, want[entry.id].second);
      EXPECT_EQ(history.find(entry.id).num_outputs, entry.num_outputs);
    }
  EXPECT_EQ(num_entries, static_cast<int64_t>(want.size()));
  EXPECT_EQ(history.find(129279 + 5).num_outputs, 0);
}

TEST(TokenHistory, KeepsTheNewestTokens) {
  TokenHistory history;
  EXPECT_TRUE(history.tail().empty());
  for (TokenId id = 0; id < 1000; ++id) {
    history.append_output(id);
    const auto tail = history.tail();
    EXPECT_EQ(tail.back(), id);
    EXPECT_EQ(static_cast<int64_t>(tail.size()), std::min(id + 1, kBadWordTokensMax - 1));
    EXPECT_EQ(tail.front(), id - static_cast<TokenId>(tail.size()) + 1);
  }
}

}  // namespace
}  // namespace deepinfer
