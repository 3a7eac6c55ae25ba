// SPDX-License-Identifier: MIT
#include "store/week_simulation.h"

#include <gtest/gtest.h>

#include <unordered_set>

#include "base/file.h"

namespace deepinfer {
namespace {

constexpr size_t kRequests = 700;  // of the trace: a part keeps the test short

std::vector<WeekRequest> week() {
  const auto text = read_file(std::string(DEEPINFER_TESTDATA) + "/traces/mooncake-synthetic_trace.jsonl.gz");
  EXPECT_TRUE(text.ok());
  auto requests = parse_week(text.value(), 7 * kDayNs);
  EXPECT_TRUE(requests.ok());
  requests.value().resize(kRequests);
  const auto last = static_cast<double>(requests.value().back().at_ns);
  for (WeekRequest& request : requests.value())
    request.at_ns = static_cast<int64_t>(static_cast<double>(request.at_ns) / last * 7 * kDayNs);
  return std::move(requests).value();
}

// What a cache that forgets nothing would give: the prefix of ids seen before, in whole 128-token blocks.
int64_t hits_of_an_infinite_cache(const std::vector<WeekRequest>& requests) {
  std::unordered_set<uint64_t> seen;
  int64_t num_hit = 0;
  for (const WeekRequest& request : requests) {
    const int64_t num_full = request.num_prompt_tokens / 128;
    for (int64_t block = 0; block < num_full; ++block) {
      const uint64_t key = request.blocks[static_cast<size_t>(block / 4)] * 4 + static_cast<uint64_t>(block % 4);
      if (!seen.contains(key)) break;
      num_hit += 128;
    }
    for (int64_t block = 0; block < num_full; ++block)
      seen.insert(request.blocks[static_cast<size_t>(block / 4)] * 4 + static_cast<uint64_t>(block % 4));
  }
  return num_hit;
}

}  // namespace

TEST(WeekSimulation, ATraceIsReadLineByLine) {
  EXPECT_FALSE(parse_week("", kDayNs).ok());
  EXPECT_EQ(parse_week("{}\n", kDayNs).status().message(), "line 1: expected timestamp, input_length and hash_ids");
  const auto two = parse_week(
      "{\"timestamp\":0,\"input_length\":600,\"hash_ids\":[1,2]}\n{\"timestamp\":5,\"input_length\":1,\"hash_ids\":[]}"
      "\n",
      kDayNs);
  ASSERT_TRUE(two.ok());
  EXPECT_EQ(two.value()[1].at_ns, kDayNs);
}

// Chats live seven days: in a week nothing that is wanted expires, and the store is as good as an infinite cache.
TEST(WeekSimulation, WithRoomAndSevenDaysNothingIsLost) {
  const auto requests = week();
  const auto report = simulate_week(requests, {.ttl_class = TtlClass::kChat});
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(report.value().num_hit_tokens, hits_of_an_infinite_cache(requests));
  EXPECT_EQ(report.value().stats.num_segments_dropped_early, 0);
}

TEST(WeekSimulation, CapacityIsKeptAndMoreOfItHitsMore) {
  const auto requests = week();
  const auto all = simulate_week(requests, {});
  ASSERT_TRUE(all.ok());
  EXPECT_LE(all.value().num_hit_tokens, hits_of_an_infinite_cache(requests));  // three days, and renewal by use
  EXPECT_GT(all.value().stats.num_segments_expired, 0);
  EXPECT_GT(all.value().stats.num_copied_forward, 0);
  int64_t fewer = -1;
  for (const int64_t part : {20, 5, 2}) {
    const int64_t capacity = all.value().peak_bytes / part;
    const auto report = simulate_week(requests, {.capacity_bytes = capacity});
    ASSERT_TRUE(report.ok());
    // One request may be written before the next upkeep makes room again.
    EXPECT_LE(report.value().peak_bytes, capacity + capacity / 2) << part;
    EXPECT_LT(report.value().effective_ttl_hours, 72);
    EXPECT_GE(report.value().num_hit_tokens, fewer) << part;
    fewer = report.value().num_hit_tokens;
  }
  EXPECT_GE(all.value().num_hit_tokens, fewer);
}

TEST(WeekSimulation, TheSameTraceGivesTheSameReport) {
  const auto requests = week();
  const auto a = simulate_week(requests, {.capacity_bytes = int64_t{100} << 30});
  const auto b = simulate_week(requests, {.capacity_bytes = int64_t{100} << 30});
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(a.value().num_hit_tokens, b.value().num_hit_tokens);
  EXPECT_EQ(a.value().peak_bytes, b.value().peak_bytes);
}

}  // namespace deepinfer
