// SPDX-License-Identifier: MIT
#include "kernels/quantize/quantize.h"

#include "kernels/op_cases.h"

namespace deepinfer {
namespace {
using namespace testing_ops;

struct GoldenFormat {
  RowFormat format;
  const char *codes, *scales, *values;
};
constexpr GoldenFormat kGoldenFormats[] = {
    {RowFormat::kFp8Block32, "quant.fp8_b32.codes", "quant.fp8_b32.scales", "quant.fp8_b32.deq"},
    {RowFormat::kFp4Group16, "quant.fp4_e4m3_g16.packed", "quant.fp4_e4m3_g16.scales", "quant.fp4_e4m3_g16.deq"},
    {RowFormat::kFp4Group32, "quant.fp4_ue8m0_g32.packed", "quant.fp4_ue8m0_g32.scales", "quant.fp4_ue8m0_g32.deq"}};

bool same_value(bf16 a, bf16 b) {
  return a == b || (to_float(a) == 0 && to_float(b) == 0) || (std::isnan(to_float(a)) && std::isnan(to_float(b)));
}
}  // namespace

TEST(Quantize, RowBytesAreThoseOfTheReleasedCaches) {
  EXPECT_EQ(row_bytes(RowFormat::kFp8Block32, 512), 528);
  EXPECT_EQ(row_bytes(RowFormat::kFp4Group16, 512), 288);
  EXPECT_EQ(row_bytes(RowFormat::kFp4Group32, 128), 68);
}

TEST(Quantize, PackedRowsEqualTheGoldenCodesAndScales) {
  const auto x = units().raw<bf16>("quant.x");
  const int64_t rows = 27, columns = 64;
  for (const GoldenFormat& g : kGoldenFormats) {
    const auto codes = units().raw<uint8_t>(g.codes), scales = units().raw<uint8_t>(g.scales);
    const int64_t bytes = row_bytes(g.format, columns), num_codes = static_cast<int64_t>(codes.size()) / rows;
    on_every_row<PackRowsParams>(pack_rows_rows(), [&](const auto& row, const ExecutionContext& context) {
      std::vector<uint8_t> packed(static_cast<size_t>(rows * bytes));
      row.launch(context,
                 {.format = g.format, .x = {x.data(), {rows, columns}}, .base = packed.data(), .stride_bytes = bytes});
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t b = 0; b < bytes; ++b) {
          const uint8_t expected = b < num_codes ? codes[static_cast<size_t>(r * num_codes + b)]
                                                 : scales[static_cast<size_t>(r * (bytes - num_codes) + b - num_codes)];
          EXPECT_EQ(packed[static_cast<size_t>(r * bytes + b)], expected)
              << to_string(g.format) << " row " << r << " byte " << b;
        }
    });
  }
}

TEST(Quantize, RoundedRowsEqualTheGoldenValues) {
  const auto x = units().raw<bf16>("quant.x");
  for (const GoldenFormat& g : kGoldenFormats) {
    const auto expected = units().raw<bf16>(g.values);
    on_every_row<RoundRowsParams>(round_rows_rows(), [&](const auto& row, const ExecutionContext& context) {
      std::vector<bf16> out(x.size());
      row.launch(context, {.format = g.format, .x = {x.data(), {27, 64}}, .out = {out.data(), {27, 64}}});
      for (size_t i = 0; i < out.size(); ++i)
        EXPECT_TRUE(same_value(out[i], expected[i]))
            << to_string(g.format) << " " << i << ": " << to_float(out[i]) << " expected " << to_float(expected[i]);
    });
  }
}

TEST(Quantize, EveryRowPacksUnpacksAndRoundsAsTheReference) {
  Rng rng(3);
  for (const GoldenFormat& g : kGoldenFormats) {
    for (const int64_t columns : {32, 48, 64, 96, 160, 512, 544}) {
      if (columns % row_group(g.format) != 0) continue;
      for (const float scale : {1e-6f, 0.02f, 1.f, 300.f, 1e9f}) {
        const int64_t rows = 3, bytes = row_bytes(g.format, columns);
        const auto x = random_bf16(rng, rows * columns, scale);
        expect_rows_agree(pack_rows_rows(), std::vector<uint8_t>(static_cast<size_t>(rows * bytes)), [&](auto& out) {
          return PackRowsParams{
              .format = g.format, .x = {x.data(), {rows, columns}}, .base = out.data(), .stride_bytes = bytes};
        });
        expect_rows_agree(round_rows_rows(), x, [&](auto& out) {
          return RoundRowsParams{
              .format = g.format, .x = {out.data(), {rows, columns}}, .out = {out.data(), {rows, columns}}};
        });
      }
      const int64_t bytes = row_bytes(g.format, columns);
      auto packed = random_e4m3(rng, 2 * bytes);  // any codes and any scales but NaN
      expect_rows_agree(unpack_rows_rows(), std::vector<bf16>(static_cast<size_t>(2 * columns)), [&](auto& out) {
        return UnpackRowsParams{
            .format = g.format, .packed = {packed.data(), {2, bytes}}, .out = {out.data(), {2, columns}}};
      });
    }
  }
}

// So many groups that a warp of a device has several.
TEST(Quantize, EveryRowPacksAndRoundsManyRowsAsTheReference) {
  Rng rng(5);
  const int64_t rows = 2053, columns = 528;
  const auto x = random_bf16(rng, rows * columns, 1.f);
  const int64_t bytes = row_bytes(RowFormat::kFp4Group16, columns);
  expect_rows_agree(pack_rows_rows(), std::vector<uint8_t>(static_cast<size_t>(rows * bytes)), [&](auto& out) {
    return PackRowsParams{
        .format = RowFormat::kFp4Group16, .x = {x.data(), {rows, columns}}, .base = out.data(), .stride_bytes = bytes};
  });
  expect_rows_agree(round_rows_rows(), x, [&](auto& out) {
    return RoundRowsParams{
        .format = RowFormat::kFp4Group16, .x = {out.data(), {rows, columns}}, .out = {out.data(), {rows, columns}}};
  });
}

// Rings and paged blocks are filled through offsets; a skipped row leaves its place alone.
TEST(Quantize, PackedRowsGoWhereTheOffsetsSay) {
  Rng rng(4);
  const auto x = random_bf16(rng, 3 * 32, 1.f);
  const std::vector<int64_t> offsets = {40, kSkipRow, 3};
  std::vector<uint8_t> dense(3 * 33);
  on_every_row<PackRowsParams>(pack_rows_rows(), [&](const auto& row, const ExecutionContext& context) {
    row.launch(context, {.x = {x.data(), {3, 32}}, .base = dense.data(), .stride_bytes = 33});
    std::vector<uint8_t> out(80, 7);
    row.launch(context, {.x = {x.data(), {3, 32}}, .base = out.data(), .offset_bytes = {offsets.data(), {3}}});
    EXPECT_EQ(std::memcmp(&out[40], &dense[0], 33), 0);
    EXPECT_EQ(std::memcmp(&out[3], &dense[66], 33), 0);
    EXPECT_EQ(out[36], 7);
    EXPECT_EQ(out[73], 7);
  });
}

TEST(Quantize, RefusesColumnsThatAreNoMultipleOfTheGroup) {
  std::vector<bf16> x(40);
  EXPECT_EQ(check(RoundRowsParams{.x = {x.data(), {1, 40}}, .out = {x.data(), {1, 40}}}).message(),
            "x: columns is 40, expected a multiple of 32 (fp8_block32)");
}

TEST(Quantize, CostCountsPackedBytes) {
  std::vector<bf16> x(512);
  EXPECT_EQ(estimate(PackRowsParams{.x = {x.data(), {1, 512}}}).bytes_written, 528);
}

}  // namespace deepinfer
