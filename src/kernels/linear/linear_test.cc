// SPDX-License-Identifier: MIT
#include "kernels/linear/linear.h"

#include <fmt/format.h>

#include "kernels/op_cases.h"
#include "kernels/quantize/rounding.h"

namespace deepinfer {
namespace {
using namespace testing_ops;

// The weights of a golden GEMM as a matrix over its bytes.
struct GoldenGemm {
  std::vector<bf16> x, y;
  std::vector<uint8_t> w, s;
  int64_t rows, in, out;
};
GoldenGemm load(const std::string& name) {
  GoldenGemm g{units().raw<bf16>(name + ".x"),
               units().raw<bf16>(name + ".y"),
               units().raw<uint8_t>(name + ".w"),
               units().raw<uint8_t>(name + ".s"),
               0,
               0,
               0};
  g.rows = units().shape(name + ".x")[0];
  g.in = units().shape(name + ".x")[1];
  g.out = units().shape(name + ".y")[1];
  return g;
}

WeightMatrix pick(const OwnedWeights& w) {
  if (w.fp8.codes) return w.fp8;
  if (w.fp4.codes) return w.fp4;
  return w.matrix;
}

float weight_value(const WeightMatrix& weight, int64_t o, int64_t k) {
  if (const auto* m = std::get_if<Fp8Matrix>(&weight))
    return e4m3_to_float(m->row(o)[k]) * e8m0_to_float(m->row_scales(o)[k / 32]);
  if (const auto* m = std::get_if<Fp4Matrix>(&weight))
    return e2m1_to_float(static_cast<uint8_t>(m->row(o)[k / 2] >> (k % 2 * 4))) *
           e8m0_to_float(m->row_scales(o)[k / 32]);
  return to_float(std::get<Bf16Matrix>(weight).row(o)[k]);
}
}  // namespace

TEST(Linear, QuantisedProductsEqualTheGoldenOnes) {
  for (const char* name : {"gemm8", "gemm8_m1", "gemm4", "gemm4_m1"}) {
    const GoldenGemm g = load(name);
    const WeightMatrix weight = std::string(name).starts_with("gemm8")
                                    ? WeightMatrix(Fp8Matrix{g.w.data(), g.s.data(), g.out, g.in})
                                    : WeightMatrix(Fp4Matrix{g.w.data(), g.s.data(), g.out, g.in});
    on_every_row<LinearParams>(linear_rows(), [&](const auto& row, const ExecutionContext& context) {
      SCOPED_TRACE(name);
      std::vector<bf16> y(g.y.size());
      row.launch(context, {.x = {g.x.data(), {g.rows, g.in}},
                           .weight = weight,
                           .round_activation = true,
                           .out = {y.data(), {g.rows, g.out}}});
      expect_near_exact(y, g.y);
    });
  }
}

// Sizes that are multiples of nothing; every row of the table gives the reference's bits, with any output form.
TEST(Linear, EveryRowEqualsTheReferenceOnOddSizes) {
  Rng rng(11);
  for (const int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 17}) {
    for (const int64_t in : {32, 96, 160, 256, 1056}) {
      for (const int64_t out : {1, 7, 33, 64, 100}) {
        const OwnedWeights weights[] = {random_fp8(rng, out, in), random_fp4(rng, out, in),
                                        random_bf16_matrix(rng, out, in)};
        const auto x = random_bf16(rng, rows * in, 1.5f);
        for (const OwnedWeights& w : weights) {
          for (const bool round : {true, false}) {
            SCOPED_TRACE(std::to_string(rows) + "x" + std::to_string(in) + "x" + std::to_string(out) + " kind " +
                         std::to_string(pick(w).index()));
            expect_rows_agree(linear_rows(), std::vector<bf16>(static_cast<size_t>(rows * out)), [&](auto& y) {
              return LinearParams{.x = {x.data(), {rows, in}},
                                  .weight = pick(w),
                                  .round_activation = round,
                                  .out = {y.data(), {rows, out}}};
            });
          }
        }
      }
    }
  }
}

// K that is no multiple of 32 (bf16 and fp8 without activation rounding), a bias, accumulation, strided inputs and
// outputs.
TEST(Linear, EveryRowHandlesRaggedInputsBiasAndAccumulation) {
  Rng rng(12);
  for (const int64_t in : {1, 5, 17, 31, 45, 255}) {
    for (const int64_t rows : {1, 4, 9}) {
      const int64_t out = 37;
      const OwnedWeights fp8 = random_fp8(rng, out, in), dense = random_bf16_matrix(rng, out, in);
      const auto x = random_bf16(rng, rows * (in + 3), 1.f);
      const auto bias = random_bf16(rng, out, 1.f);
      for (const OwnedWeights* w : {&fp8, &dense}) {
        expect_rows_agree(linear_rows(), random_f32(rng, rows * (out + 2), 1.f), [&](auto& y) {
          return LinearParams{.x = {x.data(), {rows, in}, {in + 3, 1}},
                              .weight = pick(*w),
                              .bias = {bias.data(), out},
                              .out_f32 = {y.data(), {rows, out}, {out + 2, 1}},
                              .add = true};
        });
      }
    }
  }
}

// Rows and columns beyond what one pass takes: sums that wait in memory, several panels, several tiles of rows.
TEST(Linear, EveryRowEqualsTheReferenceOnManyColumns) {
  Rng rng(19);
  for (const int64_t in : {2080, 2117, 4256}) {
    const int64_t out = 43;
    const OwnedWeights weights[] = {random_fp8(rng, out, in), random_bf16_matrix(rng, out, in),
                                    in % 32 == 0 ? random_fp4(rng, out, in) : random_fp8(rng, out, in)};
    for (const int64_t rows : {1, 4, 5, 8, 9, 30, 67}) {
      const auto x = random_bf16(rng, rows * in, 1.f);
      for (const OwnedWeights& w : weights) {
        SCOPED_TRACE(fmt::format("{}x{}x{} kind {}", rows, in, out, pick(w).index()));
        expect_rows_agree(linear_rows(), random_f32(rng, rows * out, 1.f), [&](auto& y) {
          return LinearParams{.x = {x.data(), {rows, in}},
                              .weight = pick(w),
                              .round_activation = in % 32 == 0,
                              .out_f32 = {y.data(), {rows, out}}};
        });
      }
    }
  }
}

// Scales, weights and activations from one end of their range to the other, as far as fp32 holds every product exactly.
TEST(Linear, EveryRowEqualsTheReferenceOnExtremeValues) {
  Rng rng(17);
  const int64_t in = 192, out = 70;
  struct Band {
    uint32_t scale_low, scale_high;     // also the exponents of bf16 weights
    std::vector<uint32_t> x_exponents;  // lowest of eight
  };
  // 448 * 2^(246 - 127) is the largest weight that fp32 holds.
  const std::vector<Band> bands = {{0, 60, {125, 140, 180}}, {60, 120, {62, 100, 127}}, {160, 247, {0, 20, 60, 100}}};
  for (const int64_t rows : {1, 3, 6, 8, 12}) {
    for (const Band& band : bands) {
      const auto draw = [&] {
        return band.scale_low + static_cast<uint32_t>(rng.below(band.scale_high - band.scale_low));
      };
      OwnedWeights weights[] = {random_fp8(rng, out, in), random_fp4(rng, out, in), random_bf16_matrix(rng, out, in)};
      for (int w = 0; w < 2; ++w)
        for (uint8_t& scale : weights[w].scales) scale = static_cast<uint8_t>(draw());
      for (bf16& value : weights[2].values) value.bits = static_cast<uint16_t>((rng.next_u32() & 0x807F) | draw() << 7);
      for (const uint32_t exponent : band.x_exponents) {
        std::vector<bf16> x(static_cast<size_t>(rows * in));
        for (bf16& value : x)
          value.bits = static_cast<uint16_t>((rng.next_u32() & 0x807F) | (exponent + rng.below(8)) << 7);
        for (const OwnedWeights& w : weights) {
          SCOPED_TRACE(fmt::format("{} rows, scales from {}, exponent {}, kind {}", rows, band.scale_low, exponent,
                                   pick(w).index()));
          expect_rows_agree(linear_rows(), std::vector<float>(static_cast<size_t>(rows * out)), [&](auto& y) {
            return LinearParams{.x = {x.data(), {rows, in}}, .weight = pick(w), .out_f32 = {y.data(), {rows, out}}};
          });
        }
      }
    }
  }
}

// Long rows: lane sums travel over several panels.
TEST(Linear, EveryRowEqualsTheReferenceOnLongRows) {
  Rng rng(18);
  for (const int64_t in : {1024, 2080, 2304}) {
    const int64_t rows = 101, out = 45;
    const OwnedWeights weights[] = {random_fp8(rng, out, in), random_fp4(rng, out, in),
                                    random_bf16_matrix(rng, out, in)};
    const auto x = random_bf16(rng, rows * in, 1.f);
    for (const OwnedWeights& w : weights) {
      SCOPED_TRACE(std::to_string(in) + " kind " + std::to_string(pick(w).index()));
      expect_rows_agree(linear_rows(), std::vector<float>(static_cast<size_t>(rows * out)), [&](auto& y) {
        return LinearParams{.x = {x.data(), {rows, in}},
                            .weight = pick(w),
                            .round_activation = true,
                            .out_f32 = {y.data(), {rows, out}}};
      });
    }
  }
}

TEST(Linear, GroupsReadTheirOwnColumns) {
  Rng rng(13);
  const int64_t rows = 3, groups = 2, in = 64, out = 128;
  const OwnedWeights w = random_fp8(rng, out, in);
  const auto x = random_bf16(rng, rows * groups * in, 1.f);
  on_every_row<LinearParams>(linear_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<bf16> together(static_cast<size_t>(rows * out)), apart(together.size());
    row.launch(context, {.x = {x.data(), {rows, groups * in}},
                         .weight = w.fp8,
                         .num_groups = groups,
                         .out = {together.data(), {rows, out}}});
    for (int64_t g = 0; g < groups; ++g)
      row.launch(context, {.x = {x.data() + g * in, {rows, in}, {groups * in, 1}},
                           .weight = w.fp8.rows(g * out / 2, (g + 1) * out / 2),
                           .out = {apart.data() + g * out / 2, {rows, out / 2}, {out, 1}}});
    EXPECT_EQ(together, apart);
  });
}

// A row's result does not depend on the rows computed with it.
TEST(Linear, ARowIsTheSameAloneAndInABatch) {
  Rng rng(14);
  const int64_t rows = 41, in = 320, out = 70;
  const OwnedWeights weights[] = {random_fp8(rng, out, in), random_fp4(rng, out, in), random_bf16_matrix(rng, out, in)};
  const auto x = random_bf16(rng, rows * in, 1.f);
  for (const OwnedWeights& w : weights) {
    on_every_row<LinearParams>(linear_rows(), [&](const auto& row, const ExecutionContext& context) {
      std::vector<float> batch(static_cast<size_t>(rows * out)), alone(batch.size());
      row.launch(context, {.x = {x.data(), {rows, in}},
                           .weight = pick(w),
                           .round_activation = true,
                           .out_f32 = {batch.data(), {rows, out}}});
      for (int64_t r = 0; r < rows; ++r)
        row.launch(context, {.x = {x.data() + r * in, {1, in}},
                             .weight = pick(w),
                             .round_activation = true,
                             .out_f32 = {alone.data() + r * out, {1, out}}});
      EXPECT_EQ(std::memcmp(batch.data(), alone.data(), batch.size() * sizeof(float)), 0);
    });
  }
}

// The same where different numbers of rows take different kernels (on devices: up to 8, 96, 160, 192, 240, 256, 272,
// 288, more) and a matrix of few outputs is summed in segments, or has but one.
TEST(Linear, ARowIsTheSameInBatchesOfAnySize) {
  Rng rng(19);
  const int64_t rows = 600, out = 70;
  for (const int64_t in : {1280, 256}) {
    const OwnedWeights weights[] = {random_fp8(rng, out, in), random_fp4(rng, out, in),
                                    random_bf16_matrix(rng, out, in)};
    const auto x = random_bf16(rng, rows * in, 1.f);
    for (const OwnedWeights& w : weights) {
      on_every_row<LinearParams>(linear_rows(), [&](const auto& row, const ExecutionContext& context) {
        std::vector<float> batch(static_cast<size_t>(rows * out)), part(batch.size());
        const auto run = [&](int64_t first, int64_t count, std::vector<float>& y) {
          row.launch(context, {.x = {x.data() + first * in, {count, in}},
                               .weight = pick(w),
                               .round_activation = true,
                               .out_f32 = {y.data() + first * out, {count, out}}});
        };
        run(0, rows, batch);
        const int64_t pieces[][2] = {{0, 1}, {1, 7}, {8, 15}, {23, 64}, {87, 130}, {217, 170}, {387, 213}};
        for (const auto& [first, count] : pieces) run(first, count, part);
        EXPECT_EQ(std::memcmp(batch.data(), part.data(), batch.size() * sizeof(float)), 0) << in;
        run(40, 283, part), run(300, 265, part);
        EXPECT_EQ(std::memcmp(batch.data(), part.data(), batch.size() * sizeof(float)), 0) << in;
      });
    }
  }
}

// Matrices of so few outputs that devices read the rows as they are: one, a part of sixteen, more.
TEST(Linear, ARowIsTheSameInBatchesOfAnySizeForFewOutputs) {
  Rng rng(20);
  const int64_t rows = 300, in = 1280;
  const auto x = random_bf16(rng, rows * in, 1.f);
  for (const int64_t out : {1, 7, 12, 30}) {
    const OwnedWeights w = random_bf16_matrix(rng, out, in);
    on_every_row<LinearParams>(linear_rows(), [&](const auto& row, const ExecutionContext& context) {
      for (const bool rounds : {false, true}) {
        std::vector<float> batch(static_cast<size_t>(rows * out)), part(batch.size());
        const auto run = [&](int64_t first, int64_t count, std::vector<float>& y) {
          row.launch(context, {.x = {x.data() + first * in, {count, in}},
                               .weight = pick(w),
                               .round_activation = rounds,
                               .out_f32 = {y.data() + first * out, {count, out}}});
        };
        run(0, rows, batch);
        for (int64_t r = 0; r < 40; r += 8) run(r, 8, part);
        run(40, 15, part), run(55, 64, part), run(119, 181, part);
        EXPECT_EQ(std::memcmp(batch.data(), part.data(), batch.size() * sizeof(float)), 0) << out << " outputs";
      }
    });
  }
}

// Weights in planes give the bits that the same weights in rows give to ref, at every level: any number of rows, panels
// that end anywhere, scales from end to end of their range (the largest and the least take ways of their own).
TEST(Linear, WeightsInPlanesGiveTheBitsOfWeightsInRows) {
  Rng rng(23);
  for (const int64_t in : {32, 160, 1056, 4256}) {
    const int64_t out = in < 1000 ? 96 : 32;
    // The least scales and the largest, with activations for which fp32 holds every product and sum.
    OwnedWeights weights[] = {random_fp8(rng, out, in), random_fp4(rng, out, in), random_fp8(rng, out, in),
                              random_fp4(rng, out, in), random_fp8(rng, out, in), random_fp4(rng, out, in)};
    for (size_t w = 2; w < 6; ++w)
      for (uint8_t& scale : weights[w].scales)
        scale = static_cast<uint8_t>(w < 4 ? rng.below(60) : 200 + rng.below(47));
    for (const OwnedWeights& w : weights) {
      const OwnedWeights planes = in_planes(w);
      const float x_scale = &w >= weights + 4 ? 1e-7f : &w >= weights + 2 ? 1e6f : 1.f;
      for (const int64_t rows : {1, 2, 3, 5, 6, 7, 8, 15, 67}) {
        SCOPED_TRACE(fmt::format("{}x{}x{} kind {}", rows, in, out, pick(w).index()));
        const auto x = random_bf16(rng, rows * in, x_scale);
        std::vector<float> expected(static_cast<size_t>(rows * out));
        const auto params = [&](const OwnedWeights& weight, std::vector<float>& y) {
          return LinearParams{.x = {x.data(), {rows, in}},
                              .weight = pick(weight),
                              .round_activation = true,
                              .out_f32 = {y.data(), {rows, out}}};
        };
        Scratch scratch;
        linear_rows()[0].launch({nullptr, &scratch}, params(w, expected));
        on_every_host_row<LinearParams>(linear_rows(), [&](const auto& row, const ExecutionContext& context) {
          std::vector<float> y(expected.size());
          ASSERT_TRUE(check(params(planes, y)).ok());
          row.launch(context, params(planes, y));
          EXPECT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)), 0);
        });
      }
    }
  }
}

// Groups are tiles of their own in either layout.
TEST(Linear, BlockDiagonalWeightsMayStandInPlanes) {
  Rng rng(24);
  const int64_t groups = 3, in = 96, out = 192, rows = 11;
  const OwnedWeights w = random_fp8(rng, out, in), planes = in_planes(w);
  const auto x = random_bf16(rng, rows * in * groups, 1.f);
  std::vector<bf16> expected(static_cast<size_t>(rows * out));
  const auto params = [&](const Fp8Matrix& weight, std::vector<bf16>& y) {
    return LinearParams{
        .x = {x.data(), {rows, in * groups}}, .weight = weight, .num_groups = groups, .out = {y.data(), {rows, out}}};
  };
  Scratch scratch;
  linear_rows()[0].launch({nullptr, &scratch}, params(w.fp8, expected));
  on_every_host_row<LinearParams>(linear_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<bf16> y(expected.size());
    row.launch(context, params(planes.fp8, y));
    EXPECT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(bf16)), 0);
  });
}

TEST(Linear, RefusesPlanesOfSizesThatCannotHaveThem) {
  const uint8_t byte = 0;
  std::vector<bf16> x(64), y(64);
  const LinearParams p{.x = {x.data(), {1, 64}},
                       .weight = Fp8Matrix{&byte, &byte, 40, 64, WeightLayout::kPlanes},
                       .out = {y.data(), {1, 40}}};
  EXPECT_EQ(check(p).message(), "weight: 40 x 64 in planes, expected multiples of 32");
}

// Decision 27: fp32 results within 2^-18 of the sum of absolute products of an fp64 recomputation.
TEST(Linear, SumsAreCloseToDoublePrecision) {
  Rng rng(15);
  const int64_t in = 2304, out = 16;
  const OwnedWeights weights[] = {random_fp8(rng, out, in), random_fp4(rng, out, in), random_bf16_matrix(rng, out, in)};
  const auto x = random_bf16(rng, in, 1.f);
  for (const OwnedWeights& w : weights) {
    std::vector<float> y(static_cast<size_t>(out));
    on_every_row<LinearParams>(linear_rows(), [&](const auto& row, const ExecutionContext& context) {
      row.launch(context, {.x = {x.data(), {1, in}}, .weight = pick(w), .out_f32 = {y.data(), {1, out}}});
      for (int64_t o = 0; o < out; ++o) {
        double sum = 0, magnitude = 0;
        for (int64_t k = 0; k < in; ++k) {
          const double product = double(to_float(x[static_cast<size_t>(k)])) * weight_value(pick(w), o, k);
          sum += product;
          magnitude += std::fabs(product);
        }
        EXPECT_NEAR(y[static_cast<size_t>(o)], sum, magnitude * 0x1p-18);
      }
    });
  }
}

TEST(Linear, RefusesShapesThatDoNotFit) {
  Rng rng(16);
  const OwnedWeights w = random_fp8(rng, 64, 64);
  std::vector<bf16> x(64), y(64);
  EXPECT_EQ(check(LinearParams{.x = {x.data(), {1, 32}}, .weight = w.fp8, .out = {y.data(), {1, 64}}}).message(),
            "x: in is 32, expected 64");
  EXPECT_EQ(check(LinearParams{.x = {x.data(), {1, 64}}, .weight = w.fp8, .out = {y.data(), {1, 32}}}).message(),
            "out: out is 32, expected 64");
  EXPECT_FALSE(check(LinearParams{.x = {x.data(), {1, 64}}, .weight = w.fp8}).ok());
}

TEST(Linear, CostCountsPackedWeightBytes) {
  const uint8_t byte = 0;
  const LinearParams p{
      .x = {nullptr, {2, 5120}}, .weight = Fp4Matrix{&byte, &byte, 2304, 5120}, .out = {nullptr, {2, 2304}}};
  EXPECT_EQ(estimate(p).bytes_read, 2304.0 * (2560 + 160) + 2 * 2 * 5120);
  EXPECT_EQ(estimate(p).flops, 2.0 * 2 * 2304 * 5120);
}

}  // namespace deepinfer
