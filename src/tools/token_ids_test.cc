// SPDX-License-Identifier: MIT
#include "tools/token_ids.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(TokenIds, RefusesWhatIsNoId) {
  for (const char* text :
       {"", "{}", "[1", "[1.0]", "[-1]", "[512]", "[18446744073709551615]", "[\"1\"]", "[[1]]", "[null]"})
    EXPECT_FALSE(parse_token_ids(text, 512).ok()) << text;
  EXPECT_NE(parse_token_ids("[0, 512]", 512).status().message().find("[1]"), std::string::npos) << "the place is named";
}

TEST(TokenIds, ReadsAnArray) {
  EXPECT_EQ(parse_token_ids(" [0, 511, 7] ", 512).value(), (std::vector<TokenId>{0, 511, 7}));
  EXPECT_TRUE(parse_token_ids("[]", 512).value().empty());
}

}  // namespace
}  // namespace deepinfer
