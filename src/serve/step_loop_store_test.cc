// SPDX-License-Identifier: MIT
// What the store brings back: after a restart a prompt's blocks come from disk, and the tokens are those of a cold run.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "serve/step_loop_runs.h"
#include "store/driver_dir.h"
#include "store/segment.h"

namespace deepinfer {
namespace {

constexpr int64_t kPromptTokens = 700;  // five whole blocks may come from a store: the last token is always computed

LoopRequest exact_request(uint64_t seed, const std::string& salt = "red") {
  LoopRequest request = loop_request(seed, kPromptTokens, 6);
  request.sequence.replay = ReplayMode::kExact;
  request.sequence.tenant_salt = salt;
  return request;
}

// A loop with a store on disk. Everything but the disk goes with it.
class StoredRun {
 public:
  explicit StoredRun(const std::filesystem::path& folder, const std::string& revision = "model",
                     EngineOptions engine = loop_engine_options(), int64_t num_host_blocks = 0,
                     int64_t tail_bytes_max = 1 << 20) {
    std::vector<std::unique_ptr<ShardDevice>> devices;
    devices.push_back(std::move(open_dir({.path = folder})).value());
    store_ = std::move(BlockStore::open({}, std::move(devices), clock_)).value();
    const int64_t block_bytes = LoopRun().engine().cache_layout().block_bytes;
    tier_ =
        std::make_unique<StoreTier>(*store_, StoreTierOptions{.block_bytes = block_bytes, .model_revision = revision});
    StepLoopOptions options = loop_test_options();
    options.store = tier_.get();
    options.num_host_blocks = num_host_blocks;
    options.tail_bytes_max = tail_bytes_max;
    options.scheduler.model_revision = revision;
    run_ = std::make_unique<LoopRun>(options, engine);
  }
  LoopOutput run(LoopRequest request) {
    LoopOutput output = run_->run(std::move(request));
    store_->flush();
    return output;
  }
  LoopRun& loop() { return *run_; }
  BlockStore& store() { return *store_; }

 private:
  SystemClock clock_;
  std::unique_ptr<BlockStore> store_;
  std::unique_ptr<StoreTier> tier_;
  std::unique_ptr<LoopRun> run_;
};

std::set<TtlClass> classes_on_disk(const std::filesystem::path& folder) {
  std::set<TtlClass> classes;
  for (const auto& file : std::filesystem::directory_iterator(folder / "segments")) {
    if (file.path().filename().string().starts_with("0000000000")) continue;  // a checkpoint
    const std::string bytes = std::move(read_file(file.path().string())).value().substr(0, kPageBytes);
    const auto head = decode_segment_head({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()});
    EXPECT_TRUE(head.ok());
    if (head.ok()) classes.insert(head.value().ttl_class);
  }
  return classes;
}

struct StepLoopStore : testing::Test {
  StepLoopStore() { std::filesystem::remove_all(folder); }
  ~StepLoopStore() override { std::filesystem::remove_all(folder); }
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("deepinfer_loop_store_" + std::to_string(::getpid()));
};

}  // namespace

TEST_F(StepLoopStore, APromptIsFoundAfterARestartAndTheTokensAreThoseOfAColdRun) {
  const std::vector<TokenId> cold = LoopRun().run(exact_request(1)).tokens;
  {
    StoredRun first(folder);
    const LoopOutput output = first.run(exact_request(1));
    EXPECT_EQ(output.tokens, cold);
    EXPECT_EQ(output.record.num_store_tokens, 0);
    EXPECT_EQ(output.record.store_reason, "never_stored");
  }
  StoredRun second(folder);
  const LoopOutput output = second.run(exact_request(1));
  EXPECT_EQ(output.tokens, cold);
  EXPECT_EQ(output.record.num_store_tokens, 640);
  EXPECT_EQ(output.record.num_cached_tokens, 640);
  EXPECT_EQ(output.record.store_reason, "none");
  const LoopOutput again = second.run(exact_request(1));  // now it is in the device's pool
  EXPECT_EQ(again.record.num_store_tokens, 0);
  EXPECT_EQ(again.record.num_cached_tokens, 640);
}

TEST_F(StepLoopStore, TenantsAndModelsNeverShare) {
  { StoredRun(folder).run(exact_request(2)); }
  StoredRun second(folder);
  EXPECT_EQ(second.run(exact_request(2, "blue")).record.num_store_tokens, 0);
  EXPECT_EQ(second.run(exact_request(2)).record.num_store_tokens, 640);
  EXPECT_EQ(second.store().stats().num_blocks, 10);
}

TEST_F(StepLoopStore, AnotherModelRevisionNeverHits) {
  { StoredRun(folder).run(exact_request(3)); }
  StoredRun other(folder, "another model");
  const LoopOutput output = other.run(exact_request(3));
  EXPECT_EQ(output.record.num_store_tokens, 0);
  EXPECT_EQ(output.record.store_reason, "never_stored");
}

// Which level is the fastest is measured at start and may differ from run to run; the bits do not.
TEST_F(StepLoopStore, ARestartAtAnotherKernelLevelFindsWhatItStored) {
  const auto run_at = [this](CpuLevel level) {
    EngineOptions engine = loop_engine_options();
    engine.target.level = level;
    const std::string revision = state_revision(LoopRun(loop_test_options(), engine).engine(), "checkpoint");
    return StoredRun(folder, revision, engine).run(exact_request(8));
  };
  const LoopOutput first = run_at(machine_cpu_level()), second = run_at(CpuLevel::kAvx2);
  EXPECT_EQ(first.record.num_store_tokens, 0);
  EXPECT_EQ(second.record.num_store_tokens, 640);
  EXPECT_EQ(second.tokens, first.tokens);
}

// The windows at the end of an agent's turn outlive the service, so that its next turn runs nothing again; a chat's are
// not written. Both say their class on disk, where it decides how long they live.
TEST_F(StepLoopStore, AnAgentsNextTurnGoesOnBehindAStoredTailAfterARestart) {
  for (const TtlClass ttl_class : {TtlClass::kAgent, TtlClass::kChat}) {
    std::filesystem::remove_all(folder);
    const bool is_agent = ttl_class == TtlClass::kAgent;
    const auto turn = [ttl_class](const std::vector<TokenId>& before, int64_t num_more, int64_t num_output) {
      LoopRequest request = loop_request(30 + before.size(), num_more, num_output);
      request.sequence.replay = ReplayMode::kExact;
      request.sequence.tenant_salt = "red";
      request.ttl_class = ttl_class;
      request.sequence.prompt.insert(request.sequence.prompt.begin(), before.begin(), before.end());
      return request;
    };
    std::vector<TokenId> before = turn({}, 250, 14).sequence.prompt;
    {
      StoredRun first(folder);
      const LoopOutput answer = first.run(turn({}, 250, 14));
      before.insert(before.end(), answer.tokens.begin(), answer.tokens.end());
      // Sent back changed: the whole state at the turn's end, which has all tokens but the last, does not fit.
      TokenId& changed = before[before.size() - 2];
      changed = (changed + 1) % 500;
    }
    EXPECT_EQ(classes_on_disk(folder), is_agent ? (std::set{TtlClass::kAgent, TtlClass::kTail}) : std::set{ttl_class});
    const std::vector<TokenId> cold = LoopRun().run(turn(before, 60, 24)).tokens;
    StoredRun second(folder);
    const LoopOutput output = second.run(turn(before, 60, 24));
    EXPECT_EQ(output.tokens, cold);
    EXPECT_EQ(output.record.num_store_tokens, 256);
    EXPECT_EQ(output.record.num_tail_tokens, is_agent ? 256 : 0);
    EXPECT_EQ(output.record.num_replayed_tokens > 0 || output.record.num_cached_tokens == 0, !is_agent);
  }
}

// The whole state at the end of an agent's turn outlives the service, too: in exact mode its next turn computes what is
// new, where a hit without it runs 128 + (k - 1) * 127 rows again. Other tokens behind the last block, a chat, and fast
// replay go the old way.
TEST_F(StepLoopStore, AnAgentsNextTurnGoesOnWhereTheLastOneEnded) {
  const auto turn = [](std::vector<TokenId> before, int64_t num_more, int64_t num_output) {
    LoopRequest request = loop_request(50 + before.size(), num_more, num_output);
    request.sequence.replay = ReplayMode::kExact;
    request.sequence.tenant_salt = "red";
    request.ttl_class = TtlClass::kAgent;
    request.sequence.prompt.insert(request.sequence.prompt.begin(), before.begin(), before.end());
    return request;
  };
  std::vector<TokenId> before = turn({}, 420, 0).sequence.prompt;
  {
    StoredRun first(folder);
    const LoopOutput answer = first.run(turn({}, 420, 30));
    before.insert(before.end(), answer.tokens.begin(), answer.tokens.end());
    const LoopOutput next = first.run(turn(before, 50, 20));  // the same service knows it, too
    EXPECT_EQ(next.record.num_resumed_tokens, 449);
    EXPECT_EQ(next.tokens, LoopRun().run(turn(before, 50, 20)).tokens);
  }
  const std::vector<TokenId> cold = LoopRun().run(turn(before, 60, 24)).tokens;
  {
    StoredRun second(folder);
    const LoopOutput output = second.run(turn(before, 60, 24));
    EXPECT_EQ(output.tokens, cold);
    EXPECT_EQ(output.record.num_resumed_tokens, 449);  // the last token of 450 was never computed
    EXPECT_EQ(output.record.num_cached_tokens, 449);
    EXPECT_EQ(output.record.num_replayed_tokens, 0);
  }
  const std::vector<TokenId> same_blocks(before.begin(), before.begin() + 384);
  {
    StoredRun third(folder);
    const LoopOutput output = third.run(turn(same_blocks, 126, 24));
    EXPECT_EQ(output.tokens, LoopRun().run(turn(same_blocks, 126, 24)).tokens);
    EXPECT_EQ(output.record.num_resumed_tokens, 0);
    EXPECT_EQ(output.record.num_store_tokens, 384);
  }
  StoredRun fourth(folder);
  LoopRequest fast = turn(before, 60, 24);
  fast.sequence.replay = ReplayMode::kFast;
  EXPECT_EQ(fourth.run(std::move(fast)).record.num_resumed_tokens, 0);
}

TEST_F(StepLoopStore, DamageOnDiskCostsTimeAndNoToken) {
  std::vector<TokenId> cold;
  { cold = StoredRun(folder).run(exact_request(4)).tokens; }
  for (const auto& file : std::filesystem::directory_iterator(folder / "segments")) {
    if (file.path().filename().string().starts_with("0000000000")) continue;  // a checkpoint
    FILE* const f = std::fopen(file.path().c_str(), "r+b");
    ASSERT_TRUE(f);
    std::fseek(f, 4096 + 4096 + 10, SEEK_SET);  // in the first block of the first row
    std::fputc(0x77, f);
    std::fputc(0x88, f);
    std::fclose(f);
  }
  StoredRun second(folder);
  const LoopOutput output = second.run(exact_request(4));
  EXPECT_EQ(output.tokens, cold);
  EXPECT_EQ(output.record.num_store_tokens, 0);
  EXPECT_EQ(output.record.store_reason, "checksum");
}

// Blocks behind a fast replay are not given to exact prompts.
TEST_F(StepLoopStore, ExactPromptsGetExactBlocksOnly) {
  const auto fast = [](int64_t num_prompt) {
    LoopRequest request = loop_request(5, num_prompt, 4);
    request.sequence.replay = ReplayMode::kFast;
    request.sequence.tenant_salt = "red";
    return request;
  };
  {
    StoredRun first(folder, "model", loop_engine_options(), 0, 0);  // no tails: the second prompt's hit is replayed
    first.run(fast(200));
    first.run(fast(kPromptTokens));  // its later blocks stand behind the hit on the first
  }
  StoredRun second(folder);
  const LoopOutput output = second.run(exact_request(5));
  EXPECT_LT(output.record.num_store_tokens, 640);
  EXPECT_EQ(output.record.store_reason, output.record.num_store_tokens > 0 ? "replay" : output.record.store_reason);
  EXPECT_EQ(output.tokens, LoopRun().run(exact_request(5)).tokens);
}

// A pool that holds one prompt, and a host tier: blocks that make room for fetched ones are saved before.
TEST_F(StepLoopStore, FetchedBlocksPushOthersIntoHostMemoryWhole) {
  EngineOptions engine = loop_engine_options();
  engine.blocks_max = 8;
  std::vector<std::vector<TokenId>> cold;
  for (uint64_t i = 0; i < 4; ++i) cold.push_back(LoopRun().run(exact_request(10 + i)).tokens);
  {
    StoredRun first(folder);
    for (uint64_t i = 0; i < 4; ++i) first.run(exact_request(10 + i));
  }
  StoredRun second(folder, "model", engine, 16);
  for (int round = 0; round < 2; ++round)
    for (uint64_t i = 0; i < 4; ++i) {
      const LoopOutput output = second.run(exact_request(10 + i));
      EXPECT_EQ(output.tokens, cold[i]) << round << " " << i;
      EXPECT_GT(output.record.num_cached_tokens, 0);
    }
}

TEST_F(StepLoopStore, APromptThatWaitsForTheStoreCanBeCancelled) {
  { StoredRun(folder).run(exact_request(20)); }
  StoredRun second(folder);
  const SequenceId id = second.loop().submit(exact_request(20));
  second.loop().loop->cancel(id);
  second.loop().finish();
  EXPECT_EQ(second.loop().output(id).finished, SequenceEnd::kCancelled);
  EXPECT_EQ(second.run(exact_request(20)).record.num_cached_tokens, 640);
}

TEST_F(StepLoopStore, ChoicesOfAPromptWaitTogether) {
  std::vector<TokenId> cold;
  { cold = StoredRun(folder).run(exact_request(21)).tokens; }
  StoredRun second(folder);
  const SequenceId first = second.loop().submit(exact_request(21));
  LoopRequest choice = exact_request(21);
  choice.sequence.prompt_of = first;
  const SequenceId other = second.loop().submit(std::move(choice));
  second.loop().finish();
  EXPECT_EQ(second.loop().output(first).tokens, cold);
  EXPECT_EQ(second.loop().output(other).tokens, cold);
}

}  // namespace deepinfer
