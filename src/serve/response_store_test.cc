// SPDX-License-Identifier: MIT
#include "serve/response_store.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

StoredResponse response(const std::string& id, const std::string& owner, size_t num_bytes = 10) {
  StoredResponse stored{.id = id, .owner = owner, .body = std::string(num_bytes, 'b'), .messages = {}};
  stored.messages.resize(2);
  return stored;
}

TEST(ResponseStoreTest, OwnersSeeTheirOwn) {
  ResponseStore store(1 << 20, 100);
  store.put(response("r", "alice"), 0);
  EXPECT_TRUE(store.body("r", "alice", 1));
  EXPECT_EQ(store.messages("r", "alice", 1)->size(), 2u);
  EXPECT_FALSE(store.body("r", "bob", 1));
  EXPECT_FALSE(store.erase("r", "bob", 1));
  EXPECT_TRUE(store.erase("r", "alice", 1));
  EXPECT_FALSE(store.body("r", "alice", 1));
  EXPECT_EQ(store.num_bytes(), 0u);
}

TEST(ResponseStoreTest, EntriesEndWithTheirTime) {
  ResponseStore store(1 << 20, 100);
  store.put(response("r", "a"), 0);
  EXPECT_TRUE(store.body("r", "a", 99));
  EXPECT_FALSE(store.body("r", "a", 100));
  EXPECT_EQ(store.num_bytes(), 0u);
}

TEST(ResponseStoreTest, TheOldestMakeRoom) {
  ResponseStore store(100'000, 1'000'000);
  for (int i = 0; i < 1000; ++i) {
    store.put(response(std::to_string(i), "a", 9'000), i);
    ASSERT_LE(store.num_bytes(), 100'000u);
  }
  EXPECT_TRUE(store.body("999", "a", 1000));
  EXPECT_FALSE(store.body("0", "a", 1000));
  store.put(response("huge", "a", 200'000), 1000);
  EXPECT_FALSE(store.body("huge", "a", 1000));
}

}  // namespace
}  // namespace deepinfer
