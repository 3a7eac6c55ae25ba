// SPDX-License-Identifier: MIT
// The same request gives the same tokens and, bit for bit, the same log probabilities, however it was served: alone or
// among others, in any order of arrival, cut into chunks of any size, with one or two threads, steps planned ahead or
// one after another, with drafts of any length or none, preempted and computed again or put away and brought back,
// behind a prefix hit in exact mode, through host memory, as one of several choices of a prompt. What is expected comes
// from the request run by itself: one lane, one thread, no drafts, no cache, plenty of blocks.
#include <gtest/gtest.h>

#include <cstring>

#include "serve/step_loop_runs.h"

namespace deepinfer {
namespace {

constexpr uint64_t kNumRequests = 64;
constexpr int64_t kSharedTokens = 130;  // a block and a little, so that beginnings are found again
constexpr int64_t kBlocksForOne = 3;    // the longest request with its drafts

int64_t between(Rng& rng, int64_t low, int64_t high) {
  return low + static_cast<int64_t>(rng.below(static_cast<uint64_t>(high - low + 1)));
}

SamplingParams random_sampling(Rng& rng) {
  SamplingParams p;
  p.seed = rng.below(1 << 20);
  p.top_logprobs = static_cast<int32_t>(rng.below(4));
  p.temperature = rng.below(4) == 0 ? 0 : 0.3f + rng.uniform();
  if (rng.below(3) == 0) p.top_p = 0.5f + rng.uniform() / 2;
  if (rng.below(3) == 0) p.top_k = static_cast<int32_t>(between(rng, 1, 50));
  if (rng.below(4) == 0) p.min_p = rng.uniform() / 10;
  if (rng.below(4) == 0) p.repetition_penalty = 1 + rng.uniform() / 2;
  if (rng.below(4) == 0) p.presence_penalty = rng.uniform();
  if (rng.below(4) == 0) p.frequency_penalty = rng.uniform();
  if (rng.below(4) == 0) p.logit_bias = {{static_cast<TokenId>(8 + rng.below(490)), 3.f}, {7, -2.f}};
  if (rng.below(4) == 0) p.bad_words = {{static_cast<TokenId>(rng.below(500))}, {1, 2}};
  if (rng.below(4) == 0) p.logprob_source = LogprobSource::kProcessed;
  p.eos_ids = {1};
  p.min_tokens = between(rng, 0, 6);
  p.ignore_eos = rng.below(4) == 0;
  if (rng.below(3) == 0) p.stop_ids = {static_cast<TokenId>(rng.below(500)), static_cast<TokenId>(rng.below(500))};
  return p;
}

// Request `number` of the suite; LoopRequests are made anew for every run.
LoopRequest suite_request(uint64_t number) {
  Rng rng(number, 17);
  LoopRequest request;
  SequenceRequest& s = request.sequence;
  request.sampling = random_sampling(rng);
  const bool grows = rng.below(4) == 0;  // to two blocks more than its first chunk needs: then others are preempted
  s.prompt = random_prompt(1000 + number, grows ? between(rng, 246, 255) : between(rng, 8, 30));
  if (!grows && rng.below(3) != 0) {
    const auto shared = random_prompt(rng.below(2), kSharedTokens);
    s.prompt.insert(s.prompt.begin(), shared.begin(), shared.end());
  }
  s.max_output_tokens = grows ? between(rng, 8, 16) : between(rng, 1, 10);
  s.stop_ids = request.sampling.stop_ids;
  if (!request.sampling.ignore_eos) s.stop_ids.push_back(1);
  // Fast replay behind a hit is another computation by design: such requests do without the cache here.
  s.replay = rng.below(3) == 0 ? ReplayMode::kFast : ReplayMode::kExact;
  s.use_prefix_cache = s.replay == ReplayMode::kExact;
  return request;
}

LoopOutput run_alone(uint64_t number, uint32_t choice) {
  static LoopRun* const run = [] {
    StepLoopOptions options = loop_test_options();
    options.scheduler.num_lanes = 1;
    options.scheduler.num_drafts = 0;
    options.pipelined = false;
    return new LoopRun(options);
  }();
  LoopRequest request = suite_request(number);
  request.sequence.use_prefix_cache = false;
  request.sampling.choice = choice;
  return run->run(std::move(request));
}

const LoopOutput& alone(uint64_t number, uint32_t choice = 0) {
  static std::map<std::pair<uint64_t, uint32_t>, LoopOutput> outputs;
  const auto found = outputs.find({number, choice});
  if (found != outputs.end()) return found->second;
  return outputs.emplace(std::pair(number, choice), run_alone(number, choice)).first->second;
}

bool same_bits(float a, float b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

void expect_same(const LoopOutput& got, const LoopOutput& want, const std::string& where) {
  ASSERT_TRUE(got.refused.ok()) << where << ": " << got.refused.message();
  ASSERT_EQ(got.tokens, want.tokens) << where;
  ASSERT_EQ(got.finished, want.finished) << where;
  ASSERT_EQ(got.logprobs.size(), want.logprobs.size()) << where;
  for (size_t i = 0; i < want.logprobs.size(); ++i) {
    const TokenLogprobs &a = got.logprobs[i], &b = want.logprobs[i];
    ASSERT_TRUE(same_bits(a.logprob, b.logprob)) << where << ", logprob of output " << i;
    ASSERT_EQ(a.likeliest.size(), b.likeliest.size()) << where;
    for (size_t k = 0; k < a.likeliest.size(); ++k)
      ASSERT_TRUE(a.likeliest[k].first == b.likeliest[k].first &&
                  same_bits(a.likeliest[k].second, b.likeliest[k].second))
          << where << ", alternative " << k << " of output " << i;
  }
}

struct Exercised {
  int64_t num_preemptions = 0, num_saved_bytes = 0, num_hit_tokens = 0, num_host_blocks = 0, num_accepted = 0;
  int64_t num_rejected = 0, num_shared_tokens = 0, num_chunks = 0, num_tail_tokens = 0;
  void add(const SequenceRecord& r) {
    num_preemptions += r.num_preemptions;
    num_saved_bytes += r.num_offloaded_bytes;
    num_hit_tokens += r.num_cached_tokens;
    num_host_blocks += r.num_loaded_blocks;
    num_accepted += r.num_accepted;
    num_rejected += r.num_verified - r.num_accepted;
    num_shared_tokens += r.num_shared_tokens;
    num_chunks += r.num_chunks;
    num_tail_tokens += r.num_tail_tokens;
  }
};

// Everything about how requests are served, drawn from one seed.
struct Schedule {
  EngineOptions engine = loop_engine_options();
  StepLoopOptions loop = loop_test_options();
};

Schedule random_schedule(Rng& rng) {
  Schedule out;
  const int64_t block = golden_model().weights->config().draft.block_size;
  out.engine.num_threads = static_cast<int>(between(rng, 1, 2));
  out.engine.has_thread = rng.below(2) == 0;
  out.loop.pipelined = rng.below(3) != 0;
  out.engine.lanes_max = rng.below(4) == 0 ? 1 : between(rng, 2, 8);
  out.engine.rows_max = std::max<int64_t>(out.engine.lanes_max * (block + 1), between(rng, 1, 200));
  out.engine.blocks_max = rng.below(4) != 0 ? between(rng, kBlocksForOne, 5) : between(rng, 8, 64);
  SchedulerOptions& s = out.loop.scheduler;
  s.num_lanes = out.engine.lanes_max;
  s.rows_max = out.engine.rows_max;
  s.num_drafts = rng.below(4) == 0 ? 0 : between(rng, 1, block);
  s.chunk_rows_min = between(rng, 1, 40);
  s.token_budget = between(rng, 1, 300);
  s.step_budget_ns = between(rng, 1, 100'000'000);
  s.admission = rng.below(2) == 0 ? "fcfs" : "shortest";
  // What a step seems to cost decides the verify lengths: from all drafts to none.
  s.profile.a = 1e5 * static_cast<double>(rng.uniform());
  s.profile.v = 1e5 * static_cast<double>(rng.uniform());
  s.snapshots.preempt_by = static_cast<PreemptBy>(rng.below(3));
  s.snapshots.bytes_max = rng.below(3) == 0 ? 0 : int64_t{64} << 20;
  out.loop.num_host_blocks = rng.below(4) == 0 ? 0 : between(rng, 1, 40);
  out.loop.tail_bytes_max = rng.below(3) == 0 ? 0 : int64_t{1} << 20;
  return out;
}

struct Submitted {
  SequenceId id{};
  uint64_t number = 0;
  uint32_t choice = 0;
};

// Submits `numbers` in that order while steps run, sometimes as several choices, with some that are cancelled among
// them, and compares every one that ran to its end.
void check_schedule(uint64_t seed, const std::vector<uint64_t>& numbers, Rng& rng, const Schedule& schedule,
                    Exercised& exercised) {
  LoopRun run(schedule.loop, schedule.engine);
  std::vector<Submitted> submitted;
  std::vector<SequenceId> cancelled;
  const auto submit = [&](uint64_t number, uint32_t choice, std::optional<SequenceId> prompt_of) {
    LoopRequest request = suite_request(number);
    request.sampling.choice = choice;
    request.sequence.priority = static_cast<int32_t>(rng.below(2));
    request.sequence.draft = rng.below(5) != 0;
    request.sequence.prompt_of = prompt_of;
    submitted.push_back({run.submit(std::move(request)), number, choice});
    return submitted.back().id;
  };
  for (const uint64_t number : numbers) {
    const SequenceId first = submit(number, 0, {});
    if (rng.below(5) == 0)
      for (uint32_t choice = 1; choice <= 1 + rng.below(2); ++choice) submit(number, choice, first);
    if (rng.below(8) == 0) {
      cancelled.push_back(submitted[rng.below(submitted.size())].id);
      run.loop->cancel(cancelled.back());
    }
    for (uint64_t steps = rng.below(6); steps-- > 0;) ASSERT_TRUE(run.loop->run_step().ok()) << "seed " << seed;
  }
  run.finish();
  for (const Submitted& s : submitted) {
    const LoopOutput& output = run.output(s.id);
    exercised.add(output.record);
    if (output.finished == SequenceEnd::kCancelled &&
        std::find(cancelled.begin(), cancelled.end(), s.id) != cancelled.end())
      continue;
    expect_same(output, alone(s.number, s.choice),
                "seed " + std::to_string(seed) + ", request " + std::to_string(s.number) + ", choice " +
                    std::to_string(s.choice));
    if (testing::Test::HasFatalFailure()) return;
  }
}

std::vector<uint64_t> shuffled(std::vector<uint64_t> numbers, Rng& rng) {
  for (size_t i = numbers.size(); i > 1; --i) std::swap(numbers[i - 1], numbers[rng.below(i)]);
  return numbers;
}

std::vector<uint64_t> all_numbers() {
  std::vector<uint64_t> numbers(kNumRequests);
  for (uint64_t i = 0; i < kNumRequests; ++i) numbers[i] = i;
  return numbers;
}

TEST(SameTokens, AllTogether) {
  Exercised exercised;
  Rng rng(1);
  EngineOptions engine = loop_engine_options();
  engine.lanes_max = 64;
  engine.rows_max = engine.logits_rows_max = 512;
  engine.blocks_max = 192;
  for (const int threads : {1, 2}) {
    engine.num_threads = threads;
    engine.has_thread = threads == 2;
    StepLoopOptions options = loop_test_options();
    options.scheduler.num_lanes = 64;
    options.scheduler.rows_max = 512;
    check_schedule(0, all_numbers(), rng, {engine, options}, exercised);
    if (HasFatalFailure()) return;
  }
}

// A failure names its seed, on which everything about the schedule depends (but for the machine's timing: the fitted
// cost curve chooses chunks and verify lengths).
TEST(SameTokens, UnderRandomSchedules) {
  Exercised exercised;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Rng rng(seed, 99);
    const Schedule schedule = random_schedule(rng);
    std::vector<uint64_t> numbers = shuffled(all_numbers(), rng);
    numbers.resize(static_cast<size_t>(between(rng, 3, 5)));
    check_schedule(seed, numbers, rng, schedule, exercised);
    if (HasFatalFailure()) return;
  }
  // The schedules did what they are for.
  EXPECT_GT(exercised.num_preemptions, 5);
  EXPECT_GT(exercised.num_saved_bytes, 50'000);
  EXPECT_GT(exercised.num_hit_tokens, 1000);
  EXPECT_GT(exercised.num_host_blocks, 2);
  EXPECT_GT(exercised.num_accepted, 100);
  EXPECT_GT(exercised.num_rejected, 100);
  EXPECT_GT(exercised.num_shared_tokens, 1000);
  EXPECT_GT(exercised.num_tail_tokens, 100);
  std::printf(
      "%ld preemptions, %ld bytes of states saved, %ld hit tokens, %ld blocks from host memory, %ld drafts "
      "accepted, %ld rejected, %ld shared prompt tokens\n",
      static_cast<long>(exercised.num_preemptions), static_cast<long>(exercised.num_saved_bytes),
      static_cast<long>(exercised.num_hit_tokens), static_cast<long>(exercised.num_host_blocks),
      static_cast<long>(exercised.num_accepted), static_cast<long>(exercised.num_rejected),
      static_cast<long>(exercised.num_shared_tokens));
}

}  // namespace
}  // namespace deepinfer
