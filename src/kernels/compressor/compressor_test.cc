// SPDX-License-Identifier: MIT
#include "kernels/compressor/compressor.h"

#include "kernels/op_cases.h"

namespace deepinfer {
namespace {
using namespace testing_ops;

// Pools groups of one lane over `positions` rows given in steps cut at `cuts`, as an engine would.
std::vector<bf16> pool_in_steps(const KernelRow<CompressorPoolParams>& pool, const ExecutionContext& context, int ratio,
                                int64_t head_dim, const std::vector<float>& kv, const std::vector<float>& gate,
                                const std::vector<int64_t>& cuts) {
  const int64_t slots = 7;
  std::vector<float> tail(static_cast<size_t>(2 * slots * 2 * head_dim), NAN);
  std::vector<bf16> out;
  for (size_t c = 0; c + 1 < cuts.size(); ++c) {
    const int64_t begin = cuts[c], end = cuts[c + 1];
    std::vector<int32_t> lane, last_row, last_position, num_rows, position, row_lane;
    for (int64_t p = begin; p < end; ++p) {
      position.push_back(p >= end - slots ? static_cast<int32_t>(p) : -1);
      row_lane.push_back(1);
      if ((p + 1) % ratio != 0) continue;
      lane.push_back(1);
      last_row.push_back(static_cast<int32_t>(p - begin));
      last_position.push_back(static_cast<int32_t>(p));
      num_rows.push_back(static_cast<int32_t>(std::min<int64_t>(ratio, p - begin + 1)));
    }
    const int64_t groups = static_cast<int64_t>(lane.size()), rows = end - begin;
    const View<const float, dim::tokens, dim::head_dim> kv_view(kv.data() + begin * head_dim, {rows, head_dim}),
        gate_view(gate.data() + begin * head_dim, {rows, head_dim});
    const View<float, dim::lanes, dim::slots, dim::columns> tail_view(tail.data(), {2, slots, 2 * head_dim});
    std::vector<bf16> pooled(static_cast<size_t>(groups * head_dim));
    const CompressorPoolParams params{.ratio = ratio,
                                      .kv = kv_view,
                                      .gate = gate_view,
                                      .tail = tail_view,
                                      .lane = {lane.data(), {groups}},
                                      .last_row = {last_row.data(), {groups}},
                                      .last_position = {last_position.data(), {groups}},
                                      .num_rows = {num_rows.data(), {groups}},
                                      .out = {pooled.data(), {groups, head_dim}}};
    EXPECT_TRUE(check(params).ok()) << check(params).message();
    pool.launch(context, params);
    out.insert(out.end(), pooled.begin(), pooled.end());
    compressor_tail_rows()[0].launch(context, {.kv = kv_view,
                                               .gate = gate_view,
                                               .lane = {row_lane.data(), {rows}},
                                               .position = {position.data(), {rows}},
                                               .tail = tail_view});
  }
  return out;
}
}  // namespace

TEST(Compressor, PoolsByTheSoftmaxOfTheGate) {
  Rng rng(51);
  for (const int ratio : {2, 3, 4}) {
    const int64_t head_dim = 19, rows = 12;
    const auto kv = random_f32(rng, rows * head_dim, 1.f), gate = random_f32(rng, rows * head_dim, 2.f);
    on_every_row<CompressorPoolParams>(compressor_pool_rows(), [&](const auto& row, const ExecutionContext& context) {
      const auto out = pool_in_steps(row, context, ratio, head_dim, kv, gate, {0, rows});
      ASSERT_EQ(out.size(), static_cast<size_t>(rows / ratio * head_dim));
      for (int64_t g = 0; g < rows / ratio; ++g)
        for (int64_t d = 0; d < head_dim; ++d) {
          double sum = 0, pooled = 0;
          for (int i = 0; i < ratio; ++i)
            sum += std::exp(double(gate[static_cast<size_t>((g * ratio + i) * head_dim + d)]));
          for (int i = 0; i < ratio; ++i)
            pooled += std::exp(double(gate[static_cast<size_t>((g * ratio + i) * head_dim + d)])) / sum *
                      kv[static_cast<size_t>((g * ratio + i) * head_dim + d)];
          EXPECT_LE(bf16_steps(out[static_cast<size_t>(g * head_dim + d)], to_bf16(static_cast<float>(pooled))),
                    std::fabs(pooled) < 1e-2 ? 4 : 1);
        }
    });
  }
}

// Groups that straddle steps take their first rows from the tail, with the same bits.
TEST(Compressor, StepsDoNotChangeTheResult) {
  Rng rng(52);
  const int64_t head_dim = 21, rows = 20;
  const auto kv = random_f32(rng, rows * head_dim, 1.f), gate = random_f32(rng, rows * head_dim, 2.f);
  on_every_row<CompressorPoolParams>(compressor_pool_rows(), [&](const auto& row, const ExecutionContext& context) {
    for (const int ratio : {2, 4}) {
      const auto whole = pool_in_steps(row, context, ratio, head_dim, kv, gate, {0, rows});
      EXPECT_EQ(whole, pool_in_steps(row, context, ratio, head_dim, kv, gate, {0, 1, 2, 3, 8, 13, 17, 20}));
      EXPECT_EQ(whole, compressor_pool_rows().size()
                           ? pool_in_steps(compressor_pool_rows()[0], context, ratio, head_dim, kv, gate, {0, rows})
                           : whole);
    }
  });
}

}  // namespace deepinfer
