// SPDX-License-Identifier: MIT
// The store is killed (SIGKILL) at random points of a write workload and opened again: every extent that was
// acknowledged and published is whole, and nothing that is delivered is wrong. The writer is a process of its own.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>

#include "base/philox.h"
#include "store/block_store.h"
#include "store/driver_dir.h"

namespace deepinfer {
namespace {

constexpr int64_t kBlock = 20'000;
const KeyScope kScope{.tenant_salt = "crash", .model_revision = "m"};

std::vector<BlockKey> keys_of(uint64_t seed, int64_t num_blocks) {
  std::vector<TokenId> tokens;
  Rng rng(seed);
  for (int64_t i = 0; i < num_blocks * kBlockKeyTokens; ++i) tokens.push_back(static_cast<TokenId>(rng.below(100'000)));
  return BlockKeyChain(kScope).extend(tokens);
}

void fill(const BlockKey& key, std::span<uint8_t> out) {
  Rng rng(key.low, key.high);
  for (size_t i = 0; i + 4 <= out.size(); i += 4) {
    const uint32_t word = rng.next_u32();
    std::memcpy(out.data() + i, &word, 4);
  }
}

Result<std::unique_ptr<BlockStore>> open_at(const std::filesystem::path& root, int num_dirs, const Clock& clock) {
  StoreOptions options;
  options.segment_bytes_max = 2 << 20;  // many seals and heads
  options.checkpoint_every_ns = 20'000'000;
  if (num_dirs > 1) {
    options.num_data_shards = 10;
    options.num_parity_shards = 2;
  }
  std::vector<std::unique_ptr<ShardDevice>> devices;
  for (int i = 0; i < num_dirs; ++i) {
    ASSIGN_OR_RETURN(auto dir, open_dir({.path = root / std::to_string(i)}));
    devices.push_back(std::move(dir));
  }
  return BlockStore::open(options, std::move(devices), clock);
}

// Writes chains for ever; says the number of each once the store has published it.
[[noreturn]] void write_until_killed(const std::filesystem::path& root, int num_dirs, uint64_t first, int say) {
  const SystemClock clock;
  auto store = open_at(root, num_dirs, clock);
  if (!store.ok()) _exit(3);
  Rng rng(first);
  for (uint64_t seed = first;; ++seed) {
    const auto keys = keys_of(seed, 1 + static_cast<int64_t>(seed % 40));
    std::vector<uint8_t> bytes(keys.size() * kBlock);
    for (size_t b = 0; b < keys.size(); ++b) fill(keys[b], std::span(bytes).subspan(b * kBlock, kBlock));
    store.value()->put(
        {.scope = store.value()->scope(kScope), .keys = keys, .block_bytes = kBlock, .bytes = std::move(bytes)});
    store.value()->flush();
    const bool published = store.value()->lookup(store.value()->scope(kScope), keys, false).num_blocks ==
                           static_cast<int64_t>(keys.size());
    if (published && ::write(say, &seed, sizeof seed) != sizeof seed) _exit(4);
    if (rng.below(4) == 0) store.value()->maintain();
  }
}

// One life: returns the chains that were acknowledged before the end.
std::vector<uint64_t> live_and_die(const std::filesystem::path& root, int num_dirs, uint64_t first, int64_t life_us) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(ends[0]);
    write_until_killed(root, num_dirs, first, ends[1]);
  }
  ::close(ends[1]);
  std::vector<uint64_t> acknowledged;
  uint64_t seed = 0;
  if (::read(ends[0], &seed, sizeof seed) == sizeof seed) {  // it is at work: its life begins
    acknowledged.push_back(seed);
    ::usleep(static_cast<useconds_t>(life_us));
  }
  ::kill(child, SIGKILL);
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself: " << WEXITSTATUS(status);
  while (::read(ends[0], &seed, sizeof seed) == sizeof seed) acknowledged.push_back(seed);
  ::close(ends[0]);
  return acknowledged;
}

void verify(const std::filesystem::path& root, int num_dirs, const std::vector<uint64_t>& acknowledged) {
  const SystemClock clock;
  auto store = open_at(root, num_dirs, clock);
  ASSERT_TRUE(store.ok()) << store.status().message();
  std::vector<uint8_t> expected(kBlock);
  for (const uint64_t seed : acknowledged) {
    const auto keys = keys_of(seed, 1 + static_cast<int64_t>(seed % 40));
    std::vector<uint8_t> out(keys.size() * kBlock);
    const StoreGet got = store.value()->get({.scope = store.value()->scope(kScope),
                                             .keys = keys,
                                             .blocks = {0, static_cast<int64_t>(keys.size())},
                                             .block_bytes = kBlock},
                                            out);
    EXPECT_EQ(got.num_blocks, static_cast<int64_t>(keys.size())) << seed << ": " << to_string(got.reason);
    for (int64_t b = 0; b < got.num_blocks; ++b) {
      fill(keys[static_cast<size_t>(b)], expected);
      ASSERT_EQ(std::memcmp(out.data() + b * kBlock, expected.data(), kBlock), 0) << seed << " block " << b;
    }
  }
}

void crash_points(int num_dirs, int num_points) {
  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("deepinfer_crash_" + std::to_string(::getpid()));
  Rng rng(static_cast<uint64_t>(num_points));
  uint64_t first = 1;
  int64_t num_acknowledged = 0;
  std::vector<uint64_t> all;
  for (int point = 0; point < num_points && !testing::Test::HasFailure(); ++point) {
    if (point % 10 == 0) {  // a new store now and then, so that the disk does not fill
      std::filesystem::remove_all(root);
      all.clear();
    }
    const auto acknowledged = live_and_die(root, num_dirs, first, static_cast<int64_t>(rng.below(60'000)));
    first += 1'000'000;
    num_acknowledged += static_cast<int64_t>(acknowledged.size());
    all.insert(all.end(), acknowledged.begin(), acknowledged.end());
    verify(root, num_dirs, all);
  }
  std::filesystem::remove_all(root);
  EXPECT_GE(num_acknowledged, num_points);
}

}  // namespace

TEST(StoreCrash, AcknowledgedExtentsOutliveSigkill) { crash_points(1, 12); }
TEST(StoreCrash, AcknowledgedExtentsOutliveSigkillCoded) { crash_points(12, 6); }

// `make crash`: five hundred points.
TEST(StoreCrash, DISABLED_FiveHundredPoints) {
  crash_points(1, 350);
  crash_points(12, 150);
}

}  // namespace deepinfer
