// SPDX-License-Identifier: MIT
// The store over real directories, twelve of them with 10 + 2 or one without coding, with faults injected around them.
#include "store/block_store.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <thread>

#include "base/philox.h"
#include "store/driver_dir.h"
#include "store/faulty_device.h"

namespace deepinfer {
namespace {

constexpr int64_t kBlock = 1000;  // bytes; a part is 128
const KeyScope kScope{.tenant_salt = "salt", .model_revision = "model", .cache_format = 1};
constexpr int64_t kStart = 20'000 * kDayNs;

struct Chain {
  std::vector<TokenId> tokens;
  std::vector<BlockKey> keys;
};

Chain chain_of(uint64_t seed, int64_t num_blocks, const KeyScope& scope = kScope) {
  Chain chain;
  Rng rng(seed);
  for (int64_t i = 0; i < num_blocks * kBlockKeyTokens; ++i)
    chain.tokens.push_back(static_cast<TokenId>(1 + rng.below(100'000)));
  chain.keys = BlockKeyChain(scope).extend(chain.tokens);
  return chain;
}

// A block's bytes follow from its key, so that a test can tell right from wrong anywhere.
void fill_block(const BlockKey& key, std::span<uint8_t> out) {
  Rng rng(key.low, key.high);
  for (uint8_t& byte : out) byte = static_cast<uint8_t>(rng.next_u32());
}

class StoreTest : public testing::Test {
 protected:
  StoreTest() : faults_(12) {
    root_ = std::filesystem::temp_directory_path() / ("deepinfer_store_" + std::to_string(::getpid()));
    std::filesystem::remove_all(root_);
    options_.background = false;
    // No test waits for these: they only say that a slow machine is no failing device.
    options_.read_timeout_ns = options_.write_timeout_ns = 60 * kSecondNs;
    options_.writer = uint64_t{7} << 40;
    clock_ = std::make_unique<TestClock>();
  }
  ~StoreTest() override {
    for (DeviceFaults& f : faults_) f.silent = false;
    store_.reset();
    std::filesystem::remove_all(root_);
  }

  // Real time for waiting, a settable one for lifetimes.
  struct TestClock final : Clock {
    int64_t monotonic_ns() const override { return SystemClock().monotonic_ns(); }
    int64_t unix_ns() const override { return now_ns; }
    int64_t now_ns = kStart;
  };

  void open(int num_devices) {
    store_.reset();
    std::vector<std::unique_ptr<ShardDevice>> devices;
    for (int i = 0; i < num_devices; ++i) {
      auto dir = open_dir({.path = root_ / ("d" + std::to_string(i))});
      ASSERT_TRUE(dir.ok()) << dir.status().message();
      devices.push_back(std::make_unique<FaultyDevice>(std::move(dir).value(), faults_[static_cast<size_t>(i)]));
    }
    if (num_devices >= 12) {
      options_.num_data_shards = 10;
      options_.num_parity_shards = 2;
    }
    auto opened = BlockStore::open(options_, std::move(devices), *clock_);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    store_ = std::move(opened).value();
  }

  StorePut put_of(const Chain& chain, int64_t begin, int64_t end, TtlClass ttl_class = TtlClass::kChat) {
    StorePut put{.scope = store_->scope(kScope),
                 .ttl_class = ttl_class,
                 .keys = {chain.keys.begin(), chain.keys.begin() + end},
                 .first_block = begin,
                 .block_bytes = kBlock};
    put.bytes.resize(static_cast<size_t>((end - begin) * kBlock));
    for (int64_t b = begin; b < end; ++b)
      fill_block(chain.keys[static_cast<size_t>(b)],
                 std::span(put.bytes).subspan(static_cast<size_t>((b - begin) * kBlock), kBlock));
    put.tokens.assign(chain.tokens.begin() + begin * kBlockKeyTokens, chain.tokens.begin() + end * kBlockKeyTokens);
    return put;
  }
  void store(const Chain& chain, TtlClass ttl_class = TtlClass::kChat) {
    store_->put(put_of(chain, 0, static_cast<int64_t>(chain.keys.size()), ttl_class));
    store_->flush();
    // Eleven shards acknowledge; a test that breaks two of them first lets the twelfth be written.
    for (const DeviceFaults& faults : faults_)
      while (faults.num_writing > 0) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }

  // Reads the whole chain; whatever is delivered must be right.
  StoreGet read(const Chain& chain, int64_t begin = 0, bool exact_only = false) {
    const auto n = static_cast<int64_t>(chain.keys.size());
    std::vector<uint8_t> out(static_cast<size_t>((n - begin) * kBlock), 0xee);
    const StoreGet got = store_->get({.scope = store_->scope(kScope),
                                      .keys = chain.keys,
                                      .blocks = {begin, n},
                                      .block_bytes = kBlock,
                                      .exact_only = exact_only,
                                      .tokens = chain.tokens},
                                     out);
    std::vector<uint8_t> expected(kBlock);
    for (int64_t b = 0; b < got.num_blocks; ++b) {
      fill_block(chain.keys[static_cast<size_t>(begin + b)], expected);
      EXPECT_EQ(std::memcmp(out.data() + b * kBlock, expected.data(), kBlock), 0) << "block " << begin + b;
    }
    EXPECT_EQ(static_cast<int64_t>(got.fast_replay.size()), got.num_blocks);
    return got;
  }
  // The first ten good rows end a read, so a row that comes last is never looked at: here the others wait for this one.
  StoreGet read_answered_first_by(size_t device, const Chain& chain) {
    for (size_t i = 0; i < faults_.size(); ++i) faults_[i].silent = i != device;
    std::thread release([this, device, num_before = faults_[device].num_answered.load()] {
      while (faults_[device].num_answered == num_before) std::this_thread::yield();
      for (DeviceFaults& faults : faults_) faults.silent = false;
    });
    StoreGet got = read(chain);
    release.join();
    return got;
  }
  int64_t num_found(const Chain& chain) { return store_->lookup(store_->scope(kScope), chain.keys, false).num_blocks; }
  StoreMiss reason(const Chain& chain) { return store_->lookup(store_->scope(kScope), chain.keys, false).reason; }

  std::filesystem::path root_;
  std::vector<DeviceFaults> faults_;
  StoreOptions options_;
  std::unique_ptr<TestClock> clock_;
  std::unique_ptr<BlockStore> store_;
};

}  // namespace

TEST_F(StoreTest, DeliversWhatWasPutFromEveryStart) {
  for (const int num_devices : {1, 12}) {
    store_.reset();
    std::filesystem::remove_all(root_);
    open(num_devices);
    const Chain chain = chain_of(1, 75);
    EXPECT_EQ(num_found(chain), 0);
    EXPECT_EQ(reason(chain), StoreMiss::kNeverStored);
    store(chain);
    EXPECT_EQ(num_found(chain), 75);
    for (int64_t begin : {0, 1, 31, 32, 33, 74, 75}) {
      EXPECT_EQ(read(chain, begin).num_blocks, 75 - begin);
      EXPECT_EQ(read(chain, begin).reason, StoreMiss::kNone);
    }
  }
}

TEST_F(StoreTest, SurvivesARestartByCheckpointFooterAndWalk) {
  for (const int num_devices : {1, 12}) {
    store_.reset();
    std::filesystem::remove_all(root_);
    open(num_devices);
    const Chain chain = chain_of(2, 100);
    store(chain);
    open(num_devices);  // closed in good order: a checkpoint
    EXPECT_EQ(store_->recovery().num_from_checkpoint, 1);
    EXPECT_EQ(read(chain).num_blocks, 100);
    store_.reset();
    for (int i = 0; i < num_devices; ++i)
      for (const auto& file : std::filesystem::directory_iterator(root_ / ("d" + std::to_string(i)) / "segments"))
        if (file.path().filename().string().starts_with("0000000000")) std::filesystem::remove(file.path());
    open(num_devices);
    EXPECT_EQ(store_->recovery().num_from_footers, 1);
    EXPECT_EQ(read(chain).num_blocks, 100);
    store_.reset();
    for (int i = 0; i < num_devices; ++i)
      for (const auto& file : std::filesystem::directory_iterator(root_ / ("d" + std::to_string(i)) / "segments")) {
        if (file.path().filename().string().starts_with("0000000000")) std::filesystem::remove(file.path());
        else std::filesystem::resize_file(file.path(), file.file_size() - 4096);  // the seal is gone
      }
    open(num_devices);
    EXPECT_EQ(store_->recovery().num_walked, 1);
    EXPECT_EQ(read(chain).num_blocks, 100);
  }
}

TEST_F(StoreTest, EveryTwoLostDevicesAreCovered) {
  open(12);
  const Chain chain = chain_of(3, 40);
  store(chain);
  for (int a = 0; a < 12; ++a)
    for (int b = a + 1; b < 12; ++b) {
      faults_[static_cast<size_t>(a)].dead = faults_[static_cast<size_t>(b)].dead = true;
      const StoreGet got = read(chain);
      EXPECT_EQ(got.num_blocks, 40) << a << " " << b;
      faults_[static_cast<size_t>(a)].dead = faults_[static_cast<size_t>(b)].dead = false;
    }
}

TEST_F(StoreTest, EveryThreeLostDevicesAreAMissThatSaysSo) {
  open(12);
  const Chain chain = chain_of(4, 3);
  store(chain);
  int num_patterns = 0;
  for (int a = 0; a < 12; ++a)
    for (int b = a + 1; b < 12; ++b)
      for (int c = b + 1; c < 12; ++c, ++num_patterns) {
        for (const int i : {a, b, c}) faults_[static_cast<size_t>(i)].dead = true;
        const StoreGet got = read(chain);
        EXPECT_EQ(got.num_blocks, 0);
        EXPECT_EQ(got.reason, StoreMiss::kNodeLost) << a << " " << b << " " << c;
        for (const int i : {a, b, c}) faults_[static_cast<size_t>(i)].dead = false;
      }
  EXPECT_EQ(num_patterns, 220);
  EXPECT_EQ(read(chain).num_blocks, 3);  // nothing was lost for good
}

// One flipped bit, at every bit of the header's fields and at a sample of the others, is found; plain storage has
// nothing to mend it with and says so.
TEST_F(StoreTest, AFlippedBitIsAMissWithoutCoding) {
  open(1);
  for (int64_t bit = 0; bit < 4096 * 8 + 3 * 1024 * 8; bit += bit < 2048 ? 13 : 1021) {
    const Chain chain = chain_of(static_cast<uint64_t>(100'000 + bit), 3);
    store(chain);
    faults_[0].flip_bit = bit;
    const StoreGet got = read(chain);
    faults_[0].flip_bit = -1;
    EXPECT_TRUE(got.num_blocks == 0 && got.reason != StoreMiss::kNone) << bit;
  }
}

TEST_F(StoreTest, FlippedBitsOnTwoDevicesAreMendedOnRead) {
  open(12);
  const Chain chain = chain_of(5, 32);
  store(chain);
  for (const int64_t bit : {3, 100, 2000, 4096 * 8 + 5, 4096 * 8 + 128 * 8 * 20}) {
    for (int a = 0; a < 12; a += 5) {
      faults_[static_cast<size_t>(a)].flip_bit = bit;
      faults_[static_cast<size_t>((a + 1) % 12)].flip_bit = bit;
      EXPECT_EQ(read(chain).num_blocks, 32);
      faults_[static_cast<size_t>(a)].flip_bit = faults_[static_cast<size_t>((a + 1) % 12)].flip_bit = -1;
    }
  }
  EXPECT_GT(store_->stats().num_damaged_shards, 0);
}

TEST_F(StoreTest, DamageOnDiskIsRepairedWhereItStands) {
  options_.read_timeout_ns = 60'000'000'000;
  open(12);
  const Chain chain = chain_of(6, 32);
  store(chain);
  for (const auto& file : std::filesystem::directory_iterator(root_ / "d2" / "segments")) {
    FILE* const f = std::fopen(file.path().c_str(), "r+b");
    std::fseek(f, 4096 + 4096 + 100, SEEK_SET);
    std::fputc(0x5a, f);
    std::fputc(0xa5, f);
    std::fclose(f);
  }
  EXPECT_EQ(read_answered_first_by(2, chain).num_blocks, 32);
  EXPECT_EQ(store_->stats().num_damaged_shards, 1);
  store_->maintain();
  EXPECT_GE(store_->stats().num_repaired, 1);
  const ScrubReport report = store_->scrub([](int64_t, int64_t) { return true; });
  EXPECT_EQ(report.num_damaged_shards + report.num_missing_shards, 0);
}

TEST_F(StoreTest, ScrubFindsAndMendsWhatNobodyReads) {
  open(12);
  store(chain_of(7, 64));
  for (const int device : {3, 9})
    for (const auto& file : std::filesystem::directory_iterator(root_ / ("d" + std::to_string(device)) / "segments"))
      std::filesystem::resize_file(file.path(), 4096);
  ScrubReport report = store_->scrub([](int64_t, int64_t) { return true; });
  EXPECT_EQ(report.num_extents, 2);
  EXPECT_EQ(report.num_missing_shards, 4);
  report = store_->scrub([](int64_t, int64_t) { return true; });
  EXPECT_EQ(report.num_missing_shards + report.num_damaged_shards, 0);
}

TEST_F(StoreTest, AReadErrorOfTheDiskCountsAsDamage) {
  open(12);
  const Chain chain = chain_of(8, 10);
  store(chain);
  faults_[0].unreadable = faults_[1].unreadable = true;
  EXPECT_EQ(read(chain).num_blocks, 10);
  faults_[2].unreadable = true;
  const StoreGet got = read(chain);
  EXPECT_EQ(got.num_blocks, 0);
  EXPECT_EQ(got.reason, StoreMiss::kChecksum);
}

TEST_F(StoreTest, ASilentDeviceDelaysNothingAndTwoAreServed) {
  open(12);
  const Chain chain = chain_of(9, 200);
  store(chain);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(read(chain).num_blocks, 200);
  faults_[4].silent = true;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(read(chain).num_blocks, 200);
  faults_[7].silent = true;
  for (int i = 0; i < 20; ++i) EXPECT_EQ(read(chain).num_blocks, 200);
  faults_[4].silent = faults_[7].silent = false;
}

TEST_F(StoreTest, AWriteThatElevenOfTwelveTookCounts) {
  open(12);
  faults_[11].dead = true;
  const Chain chain = chain_of(10, 32);
  store(chain);
  EXPECT_EQ(num_found(chain), 32);
  faults_[10].dead = true;  // ten are not enough to acknowledge
  const Chain second = chain_of(11, 32);
  store(second);
  EXPECT_EQ(num_found(second), 0);
  EXPECT_EQ(store_->stats().num_writes_failed, 1);
  EXPECT_EQ(read(chain).num_blocks, 32);
}

TEST_F(StoreTest, AFullDiskDropsTheOldestSegmentAndSaysSo) {
  open(1);
  const Chain old = chain_of(12, 32);
  store(old, TtlClass::kAgent);
  clock_->now_ns += 12 * kHourNs;
  store_->maintain();
  faults_[0].full = true;
  const Chain lost = chain_of(13, 32);
  store(lost);
  EXPECT_EQ(num_found(lost), 0);
  EXPECT_EQ(store_->stats().num_writes_failed, 1);
  faults_[0].full = false;
  const Chain after = chain_of(14, 32);
  store(after);
  EXPECT_EQ(read(after).num_blocks, 32);
}

TEST_F(StoreTest, ExpiresBySegmentWithTheReason) {
  open(1);
  const Chain agent = chain_of(15, 40), chat = chain_of(16, 40);
  store(agent, TtlClass::kAgent);
  store(chat, TtlClass::kChat);
  clock_->now_ns += 3 * kDayNs;
  store_->maintain();
  EXPECT_EQ(store_->stats().num_extents, 4);  // the hour's end and the slack are still to come; a lookup would renew
  clock_->now_ns += kHourNs + 61 * kSecondNs;
  store_->maintain();
  EXPECT_EQ(reason(agent), StoreMiss::kExpired);
  EXPECT_EQ(store_->stats().num_extents, 2);
  clock_->now_ns += 4 * kDayNs;
  store_->maintain();
  EXPECT_EQ(reason(chat), StoreMiss::kExpired);
  EXPECT_EQ(store_->stats().num_segments, 0);
  EXPECT_EQ(store_->stats().num_bytes, 0);
  EXPECT_TRUE(std::filesystem::is_empty(root_ / "d0" / "segments"));
}

TEST_F(StoreTest, AHitInTheLastQuarterIsCopiedForward) {
  open(12);
  const Chain wanted = chain_of(17, 40), other = chain_of(18, 40);
  store(wanted, TtlClass::kAgent);
  store(other, TtlClass::kAgent);
  clock_->now_ns += 60 * kHourNs;
  EXPECT_EQ(read(wanted).num_blocks, 40);
  store_->maintain();
  EXPECT_EQ(store_->stats().num_copied_forward, 2);
  clock_->now_ns += 20 * kHourNs;
  store_->maintain();
  EXPECT_EQ(read(wanted).num_blocks, 40);
  EXPECT_EQ(reason(other), StoreMiss::kExpired);
}

TEST_F(StoreTest, PinsOutliveTheirTimeAndRestarts) {
  open(1);
  const Chain pinned = chain_of(19, 40), other = chain_of(20, 40);
  store(pinned, TtlClass::kAgent);
  store(other, TtlClass::kAgent);
  EXPECT_TRUE(store_->pin(pinned.keys));
  open(1);
  for (int day = 0; day < 10; ++day) {
    clock_->now_ns += kDayNs;
    store_->maintain();
  }
  EXPECT_EQ(read(pinned).num_blocks, 40);
  EXPECT_EQ(reason(other), StoreMiss::kExpired);
  store_->unpin(pinned.keys);
  clock_->now_ns += 4 * kDayNs;
  store_->maintain();
  EXPECT_EQ(reason(pinned), StoreMiss::kExpired);
}

TEST_F(StoreTest, APinHoldsNothingForATenantThatIsForgotten) {
  open(1);
  const Chain pinned = chain_of(19, 40);
  store(pinned, TtlClass::kAgent);
  EXPECT_TRUE(store_->pin(pinned.keys));
  store_->forget_tenant(scope_tags(kScope));
  clock_->now_ns += 4 * kDayNs;
  store_->maintain();
  EXPECT_EQ(store_->stats().num_bytes, 0);
  EXPECT_EQ(reason(pinned), StoreMiss::kTenant);
}

TEST_F(StoreTest, TooManyPinsAreRefused) {
  open(1);
  std::vector<BlockKey> keys(kPinsMax);
  Rng rng(1);  // keys are digests: their hash takes them as they come
  for (BlockKey& key : keys) key = {rng.next_u64(), rng.next_u64()};
  EXPECT_TRUE(store_->pin(keys));
  const BlockKey one_more{0, 2};
  EXPECT_FALSE(store_->pin({&one_more, 1}));
  store_->unpin(keys);
  EXPECT_TRUE(store_->pin({&one_more, 1}));
  EXPECT_EQ(store_->stats().num_pins, 1);
}

TEST_F(StoreTest, OverFullShortensTheTimeToLive) {
  options_.capacity_bytes = 600'000;
  open(1);
  std::vector<Chain> chains;
  for (int hour = 0; hour < 24; ++hour) {
    chains.push_back(chain_of(static_cast<uint64_t>(200 + hour), 64));
    store(chains.back(), TtlClass::kAgent);
    store_->maintain();
    clock_->now_ns += kHourNs;
    EXPECT_LE(store_->stats().num_bytes, 600'000);
  }
  EXPECT_EQ(reason(chains.front()), StoreMiss::kExpired);
  EXPECT_EQ(num_found(chains.back()), 64);
  // 64 blocks take about 74 KB an hour, so about 8 hours fit.
  const double hours = store_->stats().effective_ttl_s[0] / 3600;
  EXPECT_GT(hours, 5);
  EXPECT_LT(hours, 10);
}

TEST_F(StoreTest, AClockThatJumpsLosesNothingByItself) {
  open(1);
  const Chain chain = chain_of(21, 40);
  store(chain);
  clock_->now_ns -= 30 * kDayNs;  // back: nothing expires early
  store_->maintain();
  EXPECT_EQ(read(chain).num_blocks, 40);
  const Chain second = chain_of(22, 40);
  store(second);
  clock_->now_ns += 30 * kDayNs;  // and forth: what was written in between is old by its own stamp
  store_->maintain();
  EXPECT_EQ(read(chain).num_blocks, 40);
  EXPECT_EQ(reason(second), StoreMiss::kExpired);
}

TEST_F(StoreTest, BranchesAndContinuationsAreStoredOnce) {
  open(1);
  const Chain chain = chain_of(23, 70);
  store_->put(put_of(chain, 0, 20));  // a turn ends inside a cell
  store_->flush();
  store_->put(put_of(chain, 20, 50));
  store_->flush();
  store_->put(put_of(chain, 0, 70));  // everything again: only the rest is new
  store_->flush();
  EXPECT_EQ(read(chain).num_blocks, 70);
  EXPECT_EQ(store_->stats().num_blocks_put, 70);
  EXPECT_EQ(store_->stats().num_blocks_known, 50);
  store_->flush();  // the read merged the short extents of the first two cells
  EXPECT_EQ(store_->stats().num_merged, 2);
  EXPECT_EQ(read(chain).num_blocks, 70);
}

TEST_F(StoreTest, ExactRequestsDoNotGetBlocksBehindAFastReplay) {
  open(12);
  const Chain chain = chain_of(24, 40);
  StorePut put = put_of(chain, 0, 40);
  put.fast_replay.assign(40, 0);
  put.fast_replay[35] = 1;
  store_->put(std::move(put));
  store_->flush();
  EXPECT_EQ(read(chain).num_blocks, 40);
  EXPECT_EQ(read(chain).fast_replay[35], 1);
  EXPECT_EQ(read(chain, 0, true).num_blocks, 35);
  EXPECT_EQ(read(chain, 0, true).reason, StoreMiss::kReplay);
  store(chain);  // computed exactly this time
  EXPECT_EQ(read(chain, 0, true).num_blocks, 40);
}

TEST_F(StoreTest, TenantsAndModelsNeverMeet) {
  open(12);
  const Chain chain = chain_of(25, 40);
  store(chain);
  for (int field = 0; field < 3; ++field) {
    KeyScope other = kScope;
    if (field == 0) other.tenant_salt = "other";
    if (field == 1) other.model_revision = "other";
    if (field == 2) other.cache_format = 2;
    EXPECT_EQ(num_found(chain_of(25, 40, other)), 0);
    // Even with the right keys, as if an index were wrong: the rows themselves say whose they are.
    std::vector<uint8_t> out(40 * kBlock);
    const StoreGet got =
        store_->get({.scope = store_->scope(other), .keys = chain.keys, .blocks = {0, 40}, .block_bytes = kBlock}, out);
    EXPECT_EQ(got.num_blocks, 0);
    EXPECT_EQ(got.reason, field == 0 ? StoreMiss::kTenant : StoreMiss::kLayout);
    store(chain);  // the failed read took it out of the index
  }
}

TEST_F(StoreTest, ADeletedTenantMissesWithThatReason) {
  open(1);
  const Chain chain = chain_of(26, 40);
  store(chain);
  store_->forget_tenant(scope_tags(kScope));
  EXPECT_EQ(reason(chain), StoreMiss::kTenant);
  EXPECT_EQ(read(chain).reason, StoreMiss::kTenant);
  open(1);
  EXPECT_EQ(reason(chain), StoreMiss::kTenant);
}

TEST_F(StoreTest, EncryptedBlocksAreUnreadableWithoutTheKey) {
  options_.master_key = CipherKey{1, 2, 3};
  open(12);
  const Chain chain = chain_of(27, 40);
  store(chain);
  EXPECT_EQ(read(chain).num_blocks, 40);
  open(12);
  EXPECT_EQ(read(chain).num_blocks, 40);
  std::vector<uint8_t> plain(kBlock);
  fill_block(chain.keys[0], plain);
  for (const auto& file : std::filesystem::recursive_directory_iterator(root_)) {
    if (!file.is_regular_file()) continue;
    std::string bytes(file.file_size(), 0);
    FILE* const f = std::fopen(file.path().c_str(), "rb");
    ASSERT_EQ(std::fread(bytes.data(), 1, bytes.size(), f), bytes.size());
    std::fclose(f);
    EXPECT_EQ(bytes.find(std::string(plain.begin(), plain.begin() + 64)), std::string::npos) << file.path();
  }
  options_.master_key = CipherKey{1, 2, 4};
  open(12);
  EXPECT_EQ(read(chain).num_blocks, 0);
}

TEST_F(StoreTest, RecordsOfSequencesComeBack) {
  open(12);
  const Chain chain = chain_of(28, 4);
  std::vector<uint8_t> tail(1'419'264);  // decision 25
  fill_block(chain.keys[3], tail);
  const StoreScope scope = store_->scope(kScope);
  store_->put_record(scope, RecordKind::kTail, TtlClass::kTail, chain.keys[3], tail);
  store_->flush();
  EXPECT_EQ(store_->get_record(scope, RecordKind::kTail, chain.keys[3]).bytes, tail);
  EXPECT_EQ(store_->get_record(scope, RecordKind::kFull, chain.keys[3]).reason, StoreMiss::kNeverStored);
  EXPECT_EQ(num_found(chain), 0);
  clock_->now_ns += 2 * kHourNs;
  store_->maintain();
  EXPECT_EQ(store_->get_record(scope, RecordKind::kTail, chain.keys[3]).reason, StoreMiss::kExpired);
}

TEST_F(StoreTest, AFullQueueDropsItsOldest) {
  options_.write_queue_bytes_max = 100 * kBlock;
  open(1);
  const Chain first = chain_of(29, 60), second = chain_of(30, 60);
  store_->put(put_of(first, 0, 60));
  store_->put(put_of(second, 0, 60));
  store_->flush();
  EXPECT_EQ(num_found(first), 0);
  EXPECT_EQ(num_found(second), 60);
  EXPECT_EQ(store_->stats().num_puts_dropped, 1);
}

TEST_F(StoreTest, TheBackgroundDoesTheSame) {
  options_.background = true;
  open(12);
  std::vector<Chain> chains;
  for (uint64_t i = 0; i < 20; ++i) {
    chains.push_back(chain_of(300 + i, 50));
    store_->put(put_of(chains.back(), 0, 50));
  }
  store_->flush();
  for (const Chain& chain : chains) EXPECT_EQ(read(chain).num_blocks, 50);
}

TEST_F(StoreTest, OneProcessOwnsADirectory) {
  open(1);
  EXPECT_EQ(open_dir({.path = root_ / "d0"}).status().code(), StatusCode::kUnavailable);
}

TEST_F(StoreTest, TooFewDevicesAreRefusedWithTheNumber) {
  options_.num_data_shards = 10;
  options_.num_parity_shards = 2;
  std::vector<std::unique_ptr<ShardDevice>> none;
  const auto opened = BlockStore::open(options_, std::move(none), *clock_);
  EXPECT_EQ(opened.status().message(), "a placement group needs 12 devices, found 0");
}

}  // namespace deepinfer
