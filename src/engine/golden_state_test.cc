// SPDX-License-Identifier: MIT
// The caches after a golden prompt (golden README, state.safetensors): rings, compressed KV and index keys, unpacked.
#include <gtest/gtest.h>

#include <cstdio>

#include "engine/engine_state.h"
#include "engine/golden_prompts.h"

namespace deepinfer {
namespace {

class CacheReader {
 public:
  CacheReader(Engine& engine, int32_t lane, BlockTable blocks)
      : state_(engine.state()), lane_(lane), blocks_(std::move(blocks)) {}

  // Slot = position mod 16, as the reference's ring; the newest 16 positions below `length`.
  std::vector<float> ring(int layer, int64_t length) const {
    std::vector<float> out(16 * 64);
    for (int64_t p = length - 16; p < length; ++p)
      unpack(RowFormat::kFp8Block32, state_.caches.ring(layer).row(lane_, p), 64,
             &out[static_cast<size_t>(p % 16 * 64)]);
    return out;
  }
  std::vector<float> global_rows(int source, int64_t num) const {
    return paged(RowFormat::kFp4Group16, state_.caches.global_rows(source), num, 64);
  }
  std::vector<float> index_rows(int source, int64_t num) const {
    return paged(RowFormat::kFp4Group32, state_.caches.index_rows(source), num, 32);
  }

 private:
  std::vector<float> paged(RowFormat format, const ConstPaged& rows, int64_t num, int64_t columns) const {
    std::vector<float> out(static_cast<size_t>(num * columns));
    for (int64_t j = 0; j < num; ++j)
      unpack(format, rows.row(lane_, j), columns, &out[static_cast<size_t>(j * columns)]);
    return out;
  }
  void unpack(RowFormat format, const uint8_t* row, int64_t columns, float* out) const {
    std::vector<bf16> values(static_cast<size_t>(columns));
    state_.kernels.unpack_rows(
        state_.context(),
        {.format = format, .packed = {row, {1, row_bytes(format, columns)}}, .out = {values.data(), {1, columns}}});
    for (int64_t i = 0; i < columns; ++i) out[i] = to_float(values[static_cast<size_t>(i)]);
  }

  Engine::State& state_;
  int32_t lane_;
  BlockTable blocks_;
};

double share_equal(const std::vector<float>& ours, const std::vector<float>& golden, const std::string& what) {
  EXPECT_EQ(ours.size(), golden.size()) << what;
  int64_t equal = 0;
  for (size_t i = 0; i < std::min(ours.size(), golden.size()); ++i) equal += ours[i] == golden[i];
  return static_cast<double>(equal) / static_cast<double>(golden.size());
}

void check_state(const CacheReader& reader, int64_t length) {
  const SafetensorsFile& golden = golden_file("state.safetensors");
  const std::string prefix = "n" + std::to_string(length) + ".";
  double worst = 1;
  const auto check = [&](const std::string& name, const std::vector<float>& ours, double least) {
    const double share = share_equal(ours, golden.floats(prefix + name).value(), name);
    worst = std::min(worst, share);
    EXPECT_GE(share, least) << prefix << name;
  };
  for (int l = 0; l < 9; ++l) check("L" + std::to_string(l) + ".ring", reader.ring(l, length), l == 0 ? 1.0 : 0.6);
  for (int m = 0; m < 2; ++m) check("M" + std::to_string(m) + ".ring", reader.ring(9 + m, length), 0.6);
  const int sources[] = {2, 4, 5};
  for (int s = 0; s < 3; ++s) {
    const int64_t num = s < 2 ? length / 2 : length;
    check("L" + std::to_string(sources[s]) + ".ckv", reader.global_rows(s, num), 0.8);
    check("L" + std::to_string(sources[s]) + ".index_k", reader.index_rows(s, num), 0.8);
  }
  std::printf("state after %ld tokens: at least %.3f of the elements of each cache are equal\n",
              static_cast<long>(length), worst);
}

using GoldenState = AtEveryCpuLevel;
INSTANTIATE_TEST_SUITE_P(Level, GoldenState, testing::ValuesIn(golden_cpu_levels()), cpu_level_name);

TEST_P(GoldenState, CachesAfterPrefillAndAfterDecode) {
  auto engine = golden_engine(open_memory_options());
  ASSERT_TRUE(engine);
  const SafetensorsFile& trace = golden_file("trace_prefill.safetensors");
  const auto tokens = golden_tokens(trace, "tokens"), fed = golden_tokens(trace, "decode_tokens");
  const BlockTable blocks({BlockId{5}});
  ASSERT_TRUE(engine->admit({.lane = 2}).ok());
  const auto run = [&](std::vector<TokenId> rows, int64_t position) {
    Batch batch{.tokens = std::move(rows)};
    batch.sequences.push_back({.lane = 2,
                               .blocks = &blocks,
                               .position_begin = position,
                               .rows = {0, batch.num_rows()},
                               .num_logits_rows = 1});
    ASSERT_TRUE(engine->launch(batch).ok());
    ASSERT_TRUE(engine->sample(nullptr).ok());
    ASSERT_TRUE(engine->collect().ok());
  };
  const CacheReader reader(*engine, 2, blocks);
  run(tokens, 0);
  check_state(reader, 34);
  for (size_t i = 0; i < fed.size(); ++i) run({fed[i]}, 34 + static_cast<int64_t>(i));
  check_state(reader, 46);
}

}  // namespace
}  // namespace deepinfer
