// SPDX-License-Identifier: MIT
#include "tools/nearest_name.h"

#include <gtest/gtest.h>

namespace deepinfer {

TEST(NearestName, NamesTheClosestAndStaysSilentWhenNothingIsClose) {
  const std::vector<std::string> known = {"--threads", "--model", "--max-tokens"};
  EXPECT_EQ(did_you_mean("--thread", known), "; did you mean --threads?");
  EXPECT_EQ(did_you_mean("--maxtokens", known), "; did you mean --max-tokens?");
  EXPECT_EQ(did_you_mean("--zzz", {"--aaaaaaaa"}), "");
}

}  // namespace deepinfer
