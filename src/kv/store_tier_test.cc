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
  void open(const std::string& revision) {
    tier_.reset();
    store_.reset();
    std::vector<std::unique_ptr<ShardDevice>> devices;
    devices.push_back(std::move(open_dir({.path = root_})).value());
    store_ = std::move(BlockStore::open({}, std::move(devices), clock_)).value();
    tier_ = std::make_unique<StoreTier>(*store_, StoreTierOptions{.block_bytes = kBytes, .model_revision = revision});
  }
  static std::vector<BlockKey> keys(const std::string& salt, const std::string& revision, int64_t num_blocks) {
    std::vector<TokenId> tokens;
    for (TokenId i = 0; i < num_blocks * kBlockKeyTokens; ++i) tokens.push_back(i % 1000);
    return BlockKeyChain({salt, revision, 1}).extend(tokens);
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
  EXPECT_FALSE(tier_->start(1, "a", chain, 0, 40, 0, false, reason));
  EXPECT_EQ(reason, StoreMiss::kNeverStored);
  tier_->save("a", chain, {0, 10}, bytes({0, 10}), false, TtlClass::kChat);
  tier_->save("a", chain, {10, 36}, bytes({10, 36}), true, TtlClass::kChat);
  store_->flush();
  open("model");  // and after a restart
  ASSERT_TRUE(tier_->start(2, "a", chain, 7, 39, 0, false, reason));
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
  ASSERT_TRUE(tier_->start(1, "a", chain, 0, 20, 0, true, reason));
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
    ASSERT_TRUE(tier_->start(1, "a", chain, 0, 20, num_tail_max, true, reason));
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
  ASSERT_TRUE(tier_->start(2, "b", other, 0, 20, 20, true, reason));
  EXPECT_FALSE(fetched().tail);
}

TEST_F(StoreTierTest, OtherTenantsAndModelsNeverHit) {
  const auto chain = keys("a", "model", 20);
  tier_->save("a", chain, {0, 20}, bytes({0, 20}), false, TtlClass::kChat);
  store_->flush();
  StoreMiss reason{};
  EXPECT_FALSE(tier_->start(1, "b", keys("b", "model", 20), 0, 20, 0, false, reason));
  open("other");
  EXPECT_FALSE(tier_->start(2, "a", keys("a", "other", 20), 0, 20, 0, false, reason));
}

TEST_F(StoreTierTest, AGainOfOneBlockIsNotWorthAFetch) {
  const auto chain = keys("a", "model", 20);
  tier_->save("a", chain, {0, 20}, bytes({0, 20}), false, TtlClass::kChat);
  store_->flush();
  StoreMiss reason{};
  EXPECT_FALSE(tier_->start(1, "a", chain, 19, 20, 0, false, reason));
  EXPECT_FALSE(tier_->start(1, "a", chain, 0, 1, 0, false, reason));
  EXPECT_TRUE(tier_->start(1, "a", chain, 18, 20, 0, false, reason));
}

}  // namespace deepinfer
