// SPDX-License-Identifier: MIT
#include "serve/token_map_of.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

int32_t class_in(const TokenMap& map, size_t id) { return map.class_of[id]; }

TEST(TokenMapOf, TheReleasedTokenizerGivesTheSpecifiedClasses) {  // model.md 3.10, Appendix A
  const auto tokenizer = Tokenizer::load(DEEPINFER_TESTDATA "/codec/tokenizer_v41.json.gz");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  const TokenMap map = token_map_of(*tokenizer.value());
  EXPECT_EQ(map.num_classes, 99092);
  EXPECT_EQ(class_in(map, 5000), 4191);
  EXPECT_EQ(class_in(map, 50000), 10486);
  EXPECT_EQ(class_in(map, 127999), 97811);
  EXPECT_EQ(class_in(map, 129279), 99091);
}

TEST(TokenMapOf, ModelAGivesItsConfiguredNumber) {
  const auto tokenizer = Tokenizer::load(DEEPINFER_TESTDATA "/model_a/tokenizer.json");
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.status().message();
  EXPECT_EQ(token_map_of(*tokenizer.value()).num_classes, 286);
}

}  // namespace
}  // namespace deepinfer
