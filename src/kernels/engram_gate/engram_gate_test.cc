// SPDX-License-Identifier: MIT
#include "kernels/engram_gate/engram_gate.h"

#include "kernels/op_cases.h"
#include "tensor/float8.h"

namespace deepinfer {
namespace {
using namespace testing_ops;
}

TEST(EngramRows, AreDequantisedAndConcatenated) {
  Rng rng(91);
  const auto codes = random_e4m3(rng, 7 * 64), scales = random_bytes(rng, 7 * 2, 100, 140);
  const std::vector<int64_t> rows = {6, 0, 3, 3};
  on_every_row<EngramRowsParams>(engram_rows_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<bf16> out(2 * 128);
    row.launch(
        context,
        {.table = {codes.data(), scales.data(), 7, 64}, .row = {rows.data(), {2, 2}}, .out = {out.data(), {2, 128}}});
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t r = static_cast<size_t>(rows[i / 64]), c = i % 64;
      EXPECT_EQ(out[i].bits,
                to_bf16(e4m3_to_float(codes[r * 64 + c]) * std::ldexp(1.f, scales[r * 2 + c / 32] - 127)).bits);
    }
  });
}

// Against the formula in double precision; the bf16 result may differ by one step where the sum lies between two.
TEST(EngramGate, EqualsTheFormulaAndSkipsImages) {
  Rng rng(92);
  const int64_t tokens = 3, streams = 4, hidden = 80;
  const auto kv = random_bf16(rng, tokens * (streams + 1) * hidden, 1.f), q = random_bf16(rng, streams * hidden, 1.f),
             k = random_bf16(rng, streams * hidden, 1.f);
  const auto x = random_bf16(rng, tokens * streams * hidden, 1.f);
  const std::vector<uint8_t> is_image = {0, 1, 0};
  on_every_row<EngramGateParams>(engram_gate_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<bf16> out = x;
    row.launch(context, {.kv = {kv.data(), {tokens, (streams + 1) * hidden}},
                         .q_weight = {q.data(), streams, hidden},
                         .k_weight = {k.data(), streams, hidden},
                         .is_image = {is_image.data(), {tokens}},
                         .x = {out.data(), {tokens, streams, hidden}}});
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t s = 0; s < streams; ++s) {
        const bf16* xs = &x[static_cast<size_t>((t * streams + s) * hidden)];
        const bf16* key = &kv[static_cast<size_t>((t * (streams + 1) + s) * hidden)];
        const bf16* value = &kv[static_cast<size_t>((t * (streams + 1) + streams) * hidden)];
        double d = 0, xx = 0, kk = 0;
        for (int64_t i = 0; i < hidden; ++i) {
          d += double(to_float(xs[i])) * to_float(q[static_cast<size_t>(s * hidden + i)]) *
               to_float(k[static_cast<size_t>(s * hidden + i)]) * to_float(key[i]);
          xx += double(to_float(xs[i])) * to_float(xs[i]);
          kk += double(to_float(key[i])) * to_float(key[i]);
        }
        d /= std::sqrt(xx / hidden) * std::sqrt(kk / hidden) * std::sqrt(double(hidden));
        const double gate = 1 / (1 + std::exp(-std::copysign(std::sqrt(std::max(std::fabs(d), 1e-6)), d)));
        for (int64_t i = 0; i < hidden; ++i) {
          const double expected =
              is_image[static_cast<size_t>(t)] ? to_float(xs[i]) : to_float(xs[i]) + gate * to_float(value[i]);
          EXPECT_NEAR(to_float(out[static_cast<size_t>((t * streams + s) * hidden + i)]), expected,
                      std::max(std::fabs(expected), 0.1) * 0x1p-8);
        }
      }
  });
}

TEST(EngramGate, EveryRowEqualsTheReferenceOnOddSizes) {
  Rng rng(93);
  for (const int64_t hidden : {1, 15, 33, 256, 1344, 5120}) {
    const int64_t tokens = 2, streams = 3;
    const auto kv = random_bf16(rng, tokens * (streams + 1) * hidden, 1.f), q = random_bf16(rng, streams * hidden, 1.f),
               k = random_bf16(rng, streams * hidden, 1.f);
    expect_rows_agree(engram_gate_rows(), random_bf16(rng, tokens * streams * hidden, 1.f), [&](auto& x) {
      return EngramGateParams{.kv = {kv.data(), {tokens, (streams + 1) * hidden}},
                              .q_weight = {q.data(), streams, hidden},
                              .k_weight = {k.data(), streams, hidden},
                              .x = {x.data(), {tokens, streams, hidden}}};
    });
  }
}

}  // namespace deepinfer
