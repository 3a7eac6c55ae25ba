// SPDX-License-Identifier: MIT
#include "kv/store_tier.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "store/driver_dir.h"

namespace deepinfer {
namespace {

constexpr int64_t kBytes = 5000;

class StoreTierTest : public testing::Test {
 protected:
  StoreTierTest() {
    root_ = std::filesystem::temp_directory_path() / ("deepinfer_store_tier_" + std::to_string(::getpid()));
    std::filesystem::remove_all(root_);
    open("model");
  }
  ~StoreTierTest() override {
    tier_.reset();
    store_.reset();
    std::filesystem::remove_all(root_);
  }
  void open(const std::string& revision, uint32_t cache_format = 1) {
    tier_.reset();
    store_.reset();
    std::vector<std::unique_ptr<ShardDevice>> devices;
    devices.push_back(std::move(open_dir({.path = root_})).value());
    store_ = std::move(BlockStore::open({}, std::move(devices), clock_)).value();
    tier_ = std::make_unique<StoreTier>(
        *store_, StoreTierOptions{.block_bytes = kBytes, .model_revision = revision, .cache_format = cache_format});
  }
  static std::vector<BlockKey> keys(const std::string& salt, const std::string& revision, int64_t num_blocks,
                                    uint32_t cache_format = 1) {
    std::vector<TokenId> tokens;
    for (TokenId i = 0; i < num_blocks * kBlockKeyTokens; ++i) tokens.push_back(i % 1000);
    return BlockKeyChain({salt, revision, cache_format}).extend(tokens);
  }
  static std::vector<uint8_t> bytes(Range blocks) {
    std::vector<uint8_t> out;
    for (int64_t b = blocks.begin; b < blocks.end; ++b) out.insert(out.end(), kBytes, static_cast<uint8_t>(b + 1));
    return out;
  }
  StoreFetch fetched() {
    for (;;) {
      auto finished = tier_->take_finished();
      if (!finished.empty()) return std::move(finished.front());
      tier_->wait(kSecondNs);
    }
  }

  SystemClock clock_;
  std::filesystem::path root_;
  std::unique_ptr<BlockStore> store_;
  std::unique_ptr<StoreTier> tier_;
};

}  // namespace

TEST_F(StoreTierTest, FetchesWhatIsMissingBehindThePresentBlocks) {
  const auto chain = keys("a", "model", 40);
  StoreMiss reason{};
  EXPECT_FALSE(tier_->start(1, {.tenant_salt = "a", .keys = chain, .num_usable = 40}, reason));
  EXPECT_EQ(reason, StoreMiss::kNeverStored);
  tier_->save("a", chain, {0, 10}, bytes({0, 10}), false, TtlClass::kChat);
  tier_->save("a", chain, {10, 36}, bytes({10, 36}), true, TtlClass::kChat);
  store_->flush();
  open("model");  // and after a restart
  ASSERT_TRUE(tier_->start(2, {.tenant_salt = "a", .keys = chain, .num_present = 7, .num_usable = 39}, reason));
  const StoreFetch fetch = fetched();
  EXPECT_EQ(fetch.ticket, 2u);
  EXPECT_EQ(fetch.blocks, (Range{7, 36}));
  EXPECT_EQ(fetch.bytes, bytes({7, 36}));
  EXPECT_EQ(fetch.fast_replay[2], 0);
  EXPECT_EQ(fetch.fast_replay[3], 1);
  EXPECT_EQ(fetch.reason, StoreMiss::kNeverStored);
}

TEST_F(StoreTierTest, ExactPromptsStopBeforeBlocksBehindAFastReplay) {
  const auto chain = keys("a", "model", 20);
  tier_->save("a", chain, {0, 10}, bytes({0, 10}), false, TtlClass::kChat);
  tier_->save("a", chain, {10, 20}, bytes({10, 20}), true, TtlClass::kChat);
  store_->flush();
  StoreMiss reason{};
  ASSERT_TRUE(tier_->start(1, {.tenant_salt = "a", .keys = chain, .num_usable = 20, .exact_only = true}, reason));
  EXPECT_EQ(fetched().blocks, (Range{0, 10}));
  EXPECT_EQ(reason, StoreMiss::kReplay);
}

// The last tail at or before the block asked for comes with the blocks; another tenant's does not.
TEST_F(StoreTierTest, ATailComesWithTheBlocksBeforeIt) {
  const auto chain = keys("a", "model", 20);
  tier_->save("a", chain, {0, 20}, bytes({0, 20}), false, TtlClass::kAgent);
  for (const int64_t n : {12, 18})
    tier_->save_tail("a", chain[static_cast<size_t>(n - 1)],
                     std::make_shared<const std::vector<uint8_t>>(5000, static_cast<uint8_t>(n)));
  store_->flush();
  open("model");
  StoreMiss reason{};
  for (const auto& [num_tail_max, expected] : {std::pair<int64_t, int64_t>{20, 18}, {17, 12}, {11, 0}, {0, 0}}) {
    ASSERT_TRUE(tier_->start(
        1, {.tenant_salt = "a", .keys = chain, .num_usable = 20, .num_tail_max = num_tail_max, .exact_only = true},
        reason));
    const StoreFetch fetch = fetched();
    EXPECT_EQ(fetch.blocks, (Range{0, 20}));
    ASSERT_EQ(fetch.tail.has_value(), expected > 0);
    if (!fetch.tail) continue;
    EXPECT_EQ(fetch.tail->num_blocks, expected);
    EXPECT_EQ(*fetch.tail->tail.bytes, std::vector<uint8_t>(5000, static_cast<uint8_t>(expected)));
    EXPECT_FALSE(fetch.tail->tail.behind_fast_replay);
  }
  const auto other = keys("b", "model", 20);
  tier_->save("b", other, {0, 20}, bytes({0, 20}), false, TtlClass::kAgent);
  store_->flush();
  ASSERT_TRUE(tier_->start(
      2, {.tenant_salt = "b", .keys = other, .num_usable = 20, .num_tail_max = 20, .exact_only = true}, reason));
  EXPECT_FALSE(fetched().tail);
}

TEST_F(StoreTierTest, OtherTenantsAndModelsNeverHit) {
  const auto chain = keys("a", "model", 20);
  tier_->save("a", chain, {0, 20}, bytes({0, 20}), false, TtlClass::kChat);
  store_->flush();
  StoreMiss reason{};
  const auto keys_b = keys("b", "model", 20), keys_other = keys("a", "other", 20);
  EXPECT_FALSE(tier_->start(1, {.tenant_salt = "b", .keys = keys_b, .num_usable = 20}, reason));
  open("other");
  EXPECT_FALSE(tier_->start(2, {.tenant_salt = "a", .keys = keys_other, .num_usable = 20}, reason));
}

// By the keys, which hold the format; and by the rows' headers, were a key ever the same.
TEST_F(StoreTierTest, AnotherCacheFormatNeverHits) {
  const auto chain = keys("a", "model", 20), newer = keys("a", "model", 20, 2);
  tier_->save("a", chain, {0, 20}, bytes({0, 20}), false, TtlClass::kChat);
  store_->flush();
  open("model", 2);
  StoreMiss reason{};
  EXPECT_FALSE(tier_->start(1, {.tenant_salt = "a", .keys = newer, .num_usable = 20}, reason));
  EXPECT_EQ(reason, StoreMiss::kNeverStored);
  ASSERT_TRUE(tier_->start(2, {.tenant_salt = "a", .keys = chain, .num_usable = 20}, reason));
  const StoreFetch fetch = fetched();
  EXPECT_EQ(fetch.blocks, (Range{0, 0}));
  EXPECT_EQ(fetch.reason, StoreMiss::kLayout);
}

TEST_F(StoreTierTest, AMissOfATenantWhoseDataWasDeletedSaysSo) {
  const auto chain = keys("new salt", "model", 20);
  StoreMiss reason{};
  EXPECT_FALSE(tier_->start(1, {.tenant_salt = "new salt", .tenant_was_deleted = true, .keys = chain, .num_usable = 20},
                            reason));
  EXPECT_EQ(reason, StoreMiss::kTenant);
}

// A whole state is of use only where all blocks before it are there, and to exact prompts only.
TEST_F(StoreTierTest, AWholeStateComesWithTheBlocksBeforeIt) {
  const auto chain = keys("a", "model", 20);
  tier_->save("a", chain, {0, 10}, bytes({0, 10}), false, TtlClass::kAgent);
  const std::vector<uint8_t> state(5000, 7);
  tier_->save_full("a", chain[9], state);
  store_->flush();
  EXPECT_TRUE(tier_->has_full("a", chain[9]));
  EXPECT_FALSE(tier_->has_full("b", chain[8]));
  StoreMiss reason{};
  ASSERT_TRUE(tier_->start(1, {.tenant_salt = "a", .keys = chain, .num_usable = 20, .exact_only = true}, reason));
  StoreFetch fetch = fetched();
  EXPECT_EQ(fetch.blocks, (Range{0, 10}));
  EXPECT_EQ(fetch.num_full_blocks, 10);
  EXPECT_EQ(fetch.full, state);
  // Also where the blocks are at hand already.
  ASSERT_TRUE(tier_->start(
      2, {.tenant_salt = "a", .keys = chain, .num_present = 10, .num_usable = 20, .exact_only = true}, reason));
  fetch = fetched();
  EXPECT_EQ(fetch.blocks, (Range{10, 10}));
  EXPECT_EQ(fetch.full, state);
  ASSERT_TRUE(tier_->start(3, {.tenant_salt = "a", .keys = chain, .num_usable = 20}, reason));
  EXPECT_TRUE(fetched().full.empty());
  ASSERT_TRUE(tier_->start(4, {.tenant_salt = "a", .keys = chain, .num_usable = 9, .exact_only = true}, reason));
  EXPECT_TRUE(fetched().full.empty());
}

TEST_F(StoreTierTest, AGainOfOneBlockIsNotWorthAFetch) {
  const auto chain = keys("a", "model", 20);
  tier_->save("a", chain, {0, 20}, bytes({0, 20}), false, TtlClass::kChat);
  store_->flush();
  StoreMiss reason{};
  EXPECT_FALSE(tier_->start(1, {.tenant_salt = "a", .keys = chain, .num_present = 19, .num_usable = 20}, reason));
  EXPECT_FALSE(tier_->start(1, {.tenant_salt = "a", .keys = chain, .num_usable = 1}, reason));
  EXPECT_TRUE(tier_->start(1, {.tenant_salt = "a", .keys = chain, .num_present = 18, .num_usable = 20}, reason));
}

}  // namespace deepinfer
