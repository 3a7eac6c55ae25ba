// SPDX-License-Identifier: MIT
#include "store/placement.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

namespace deepinfer {
namespace {

std::vector<StoreNode> nodes(int n, int num_domains) {
  std::vector<StoreNode> all;
  for (int i = 0; i < n; ++i)
    all.push_back({"node" + std::to_string(i), num_domains ? "rack" + std::to_string(i % num_domains) : ""});
  return all;
}

}  // namespace

TEST(Placement, RefusesFewerDevicesThanTheGroupNeeds) { EXPECT_FALSE(balanced_groups(nodes(11, 0), 10, 12).ok()); }

TEST(Placement, TwelveDevicesAreOneGroup) {
  const auto groups = balanced_groups(nodes(12, 0), 4096, 12);
  ASSERT_TRUE(groups.ok());
  EXPECT_EQ(groups.value().size(), 1u);
}

// 4,096 groups on 183 nodes: a node is in 4096 * 12 / 183 = 268.6 of them; two nodes share 4096 * 12 * 11 / (183 * 182)
// = 16.2 (serving.md 9.5).
TEST(Placement, LoadAndPairsAreEven) {
  const auto made = balanced_groups(nodes(183, 0), 4096, 12);
  ASSERT_TRUE(made.ok());
  std::map<int, int> load;
  std::map<std::pair<int, int>, int> pairs;
  for (const PlacementGroup& group : made.value()) {
    EXPECT_EQ(std::set<int>(group.begin(), group.end()).size(), 12u);
    for (const int a : group) {
      ++load[a];
      for (const int b : group)
        if (a < b) ++pairs[{a, b}];
    }
  }
  for (const auto& [node, count] : load) EXPECT_NEAR(count, 268.6, 4) << node;
  EXPECT_EQ(pairs.size(), 183u * 182 / 2);
  for (const auto& [pair, count] : pairs) EXPECT_NEAR(count, 16.2, 7) << pair.first << " " << pair.second;
}

TEST(Placement, DevicesOfOneRackAreKeptApart) {
  const auto made = balanced_groups(nodes(48, 16), 200, 12);
  ASSERT_TRUE(made.ok());
  for (const PlacementGroup& group : made.value()) {
    std::set<int> racks;
    for (const int device : group) racks.insert(device % 16);
    EXPECT_EQ(racks.size(), 12u);
  }
}

TEST(Placement, AKeyMovesOnlyWhenItsGroupIsUnusable) {
  int num_moved = 0;
  for (uint64_t i = 0; i < 1000; ++i) {
    const BlockKey key{i * 0x9e3779b97f4a7c15, i};
    const int64_t before = group_of(key, 10, {});
    const int64_t after = group_of(key, 10, [](int64_t g) { return g != 3; });
    EXPECT_NE(after, 3);
    EXPECT_TRUE(before == 3 || before == after);
    num_moved += before == 3;
  }
  EXPECT_NEAR(num_moved, 100, 40);  // a tenth of the keys
  EXPECT_EQ(group_of({1, 2}, 10, [](int64_t) { return false; }), group_of({1, 2}, 10, {}));
}

}  // namespace deepinfer
