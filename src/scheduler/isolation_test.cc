// SPDX-License-Identifier: MIT
// What the prefix cache never shares: tenants with different salts, images with different bytes, and what a fast replay
// has touched with requests that want exact results (decisions 6 and 14).
#include <gtest/gtest.h>

#include "scheduler/schedule_driver.h"

namespace deepinfer {
namespace {

constexpr int64_t kBlocks = 64;

struct World {
  PrefixCache cache;
  Scheduler scheduler;
  Driver driver;
  uint64_t next_id = 1;

  static SchedulerOptions options() {
    SchedulerOptions o;
    o.num_lanes = 4;
    o.rows_max = 512;
    o.num_drafts = kNumDrafts;
    o.replay = {.window = 16, .num_layers = 4, .num_encoder_layers = 2};
    o.profile = {.a = 1e5, .b = 2e4, .d = 1, .e = 1, .k = 1e3, .v = 2e4};
    return o;
  }
  explicit World(int64_t tail_bytes_max = 0)
      : cache(kBlocks, 0, tail_bytes_max), scheduler(options(), cache), driver{scheduler, FakeEngine(1), 1} {}

  // Runs a request to its end; its output is checked, and what it reads block by block (fake_engine.h).
  SequenceRecord run(SequenceRequest request) {
    request.id = static_cast<SequenceId>(next_id++);
    const SequenceRequest kept = request;
    EXPECT_TRUE(driver.submit(request).ok());
    while (driver.step(cache)) scheduler.check_invariants();
    EXPECT_EQ(driver.outputs[kept.id], right_output(kept));
    return *scheduler.take_record(kept.id);
  }
};

SequenceRequest prompt_of(int64_t num_tokens, uint64_t seed = 5) {
  Rng rng(seed);
  SequenceRequest request;
  for (int64_t i = 0; i < num_tokens; ++i) request.prompt.push_back(static_cast<TokenId>(rng.below(997)));
  request.max_output_tokens = 20;
  request.replay = ReplayMode::kExact;
  return request;
}

TEST(Isolation, TenantsShareOnlyUnderTheSameSalt) {
  World world;
  SequenceRequest request = prompt_of(300);
  request.tenant_salt = "a";
  EXPECT_EQ(world.run(request).num_cached_tokens, 0);
  EXPECT_EQ(world.run(request).num_cached_tokens, 256);
  for (const char* salt : {"b", "", "aa"}) {
    request.tenant_salt = salt;
    const SequenceRecord record = world.run(request);
    EXPECT_EQ(record.num_cached_tokens, 0) << salt;
    EXPECT_EQ(record.miss_reason, MissReason::kNeverStored);
  }
}

TEST(Isolation, ImagesWithOtherBytesShareOnlyWhatStandsBeforeThem) {
  World world;
  SequenceRequest request = prompt_of(500);
  std::fill(request.prompt.begin() + 200, request.prompt.begin() + 240, 996);  // the image's id, whatever it shows
  MediaSpan image{200, 240, {}};
  image.digest[0] = 1;
  request.media = {image};
  EXPECT_EQ(world.run(request).num_cached_tokens, 0);
  EXPECT_EQ(world.run(request).num_cached_tokens, 384);
  request.media[0].digest[31] = 7;
  EXPECT_EQ(world.run(request).num_cached_tokens, 128);
  request.media.clear();
  EXPECT_EQ(world.run(request).num_cached_tokens, 128) << "the same ids without an image are another prompt, too";
}

TEST(Isolation, ExactRequestsNeverReadWhatAFastReplayHasTouched) {
  World world;
  SequenceRequest fast = prompt_of(300);
  fast.replay = ReplayMode::kFast;
  EXPECT_EQ(world.run(fast).num_cached_tokens, 0);  // cold: its blocks are as good as exact ones
  SequenceRequest longer = fast;
  const auto tail = prompt_of(300, 6).prompt;
  longer.prompt.resize(256);
  longer.prompt.insert(longer.prompt.end(), tail.begin(), tail.end());
  const SequenceRecord replayed = world.run(longer);
  EXPECT_EQ(replayed.num_cached_tokens, 256);
  EXPECT_EQ(replayed.num_replayed_tokens, 16) << "the window";
  SequenceRequest exact = longer;
  exact.replay = ReplayMode::kExact;
  const SequenceRecord record = world.run(exact);
  EXPECT_EQ(record.num_cached_tokens, 256) << "what stood behind the replay is computed again";
  EXPECT_EQ(record.miss_reason, MissReason::kReplay);
  // Its blocks took the place of the ones behind the replay: the next exact request hits them.
  EXPECT_EQ(world.run(exact).num_cached_tokens, 512);
  EXPECT_EQ(world.run(longer).num_cached_tokens, 512) << "a fast request may read exact blocks";
}

TEST(Isolation, OffAndDisabledRequestsNeitherReadNorSay) {
  World world;
  SequenceRequest request = prompt_of(300);
  EXPECT_EQ(world.run(request).num_cached_tokens, 0);
  request.replay = ReplayMode::kOff;
  SequenceRecord record = world.run(request);
  EXPECT_EQ(record.num_cached_tokens, 0);
  EXPECT_EQ(record.miss_reason, MissReason::kDisabled);
  request.replay = ReplayMode::kExact;
  request.use_prefix_cache = false;
  record = world.run(request);
  EXPECT_EQ(record.num_cached_tokens, 0);
  EXPECT_EQ(record.miss_reason, MissReason::kDisabled);
}

// What the tail is of is checked by the engine (fake_engine.h): here only who finds it.
TEST(Isolation, AHitWithAStoredTailReplaysNothingAndTailsCrossNoTenantOrMode) {
  World world(1 << 20);
  SequenceRequest request = prompt_of(300);
  request.replay = ReplayMode::kFast;
  request.tenant_salt = "a";
  EXPECT_EQ(world.run(request).num_tail_tokens, 0);
  SequenceRequest longer = request;
  longer.prompt.resize(256);
  const auto other = prompt_of(300, 6).prompt;
  longer.prompt.insert(longer.prompt.end(), other.begin(), other.end());
  SequenceRecord record = world.run(longer);
  EXPECT_EQ(record.num_tail_tokens, 256);
  EXPECT_EQ(record.num_replayed_tokens, 0);
  longer.tenant_salt = "b";
  EXPECT_EQ(world.run(longer).num_tail_tokens, 0);
  // Behind a tail all is exact, so exact requests find what a fast one has computed there.
  SequenceRequest exact = longer;
  exact.tenant_salt = "a";
  exact.replay = ReplayMode::kExact;
  record = world.run(exact);
  EXPECT_EQ(record.num_cached_tokens, 512);
  EXPECT_EQ(record.miss_reason, MissReason::kNone);
  // Behind a replay nothing is, neither blocks nor tails.
  World replayed(1 << 20);
  replayed.run(request);
  BlockKeyChain chain({"a", "", 1});
  for (const BlockKey& key : chain.extend(request.prompt, {})) replayed.cache.tails().forget(key);
  longer.tenant_salt = "a";
  EXPECT_EQ(replayed.run(longer).num_replayed_tokens, 16);
  record = replayed.run(exact);
  EXPECT_EQ(record.num_cached_tokens, 256);
  EXPECT_EQ(record.num_tail_tokens, 0);
}

}  // namespace
}  // namespace deepinfer
