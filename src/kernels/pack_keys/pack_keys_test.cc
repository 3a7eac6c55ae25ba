// SPDX-License-Identifier: MIT
#include "kernels/pack_keys/pack_keys.h"

#include "kernels/op_cases.h"

namespace deepinfer {
namespace {
using namespace testing_ops;
}

// Widths that a device takes in one kernel, and others; rows one after another and by offsets, one of them skipped.
TEST(PackKeys, EveryRowEqualsTheReference) {
  Rng rng(51);
  const int64_t rows = 5;
  const std::vector<int64_t> offsets = {5280, 0, kSkipRow, 1056, 2112};
  for (const auto& [columns, pairs] :
       {std::pair<int64_t, int64_t>{512, 32}, {256, 4}, {1024, 512}, {96, 16}, {512, 6}}) {
    const auto x = random_bf16(rng, rows * columns, 3.f), weight = random_bf16(rng, columns, 1.f);
    const auto cos = random_f32(rng, rows * pairs, 1.f), sin = random_f32(rng, rows * pairs, 1.f);
    const int64_t bytes = row_bytes(RowFormat::kFp8Block32, columns);
    for (const bool by_offset : {false, true}) {
      std::vector<bf16> work;
      expect_rows_agree(pack_keys_rows(), std::vector<uint8_t>(8000, 7), [&](auto& out) {
        work = x;
        PackKeysParams p{.x = {work.data(), {rows, columns}},
                         .norm_weight = {weight.data(), columns},
                         .cos = {cos.data(), {rows, pairs}},
                         .sin = {sin.data(), {rows, pairs}},
                         .to = {.base = out.data(), .stride_bytes = bytes}};
        if (by_offset) p.to.offset_bytes = {offsets.data(), {rows}};
        return p;
      });
    }
  }
}

// Where squares are added in another order, a norm's last bit may move a value over the edge between two codes.
TEST(PackKeys, RowsThatAreNotExactGiveTheSameCodesButForAFew) {
  Rng rng(52);
  const int64_t rows = 64, columns = 512, pairs = 32, bytes = row_bytes(RowFormat::kFp8Block32, columns);
  const auto x = random_bf16(rng, rows * columns, 3.f), weight = random_bf16(rng, columns, 1.f);
  const auto cos = random_f32(rng, rows * pairs, 1.f), sin = random_f32(rng, rows * pairs, 1.f);
  std::vector<uint8_t> expected;
  on_every_row<PackKeysParams>(pack_keys_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<uint8_t> out(static_cast<size_t>(rows * bytes));
    std::vector<bf16> work = x;
    row.launch(context, {.x = {work.data(), {rows, columns}},
                         .norm_weight = {weight.data(), columns},
                         .cos = {cos.data(), {rows, pairs}},
                         .sin = {sin.data(), {rows, pairs}},
                         .to = {.base = out.data(), .stride_bytes = bytes}});
    if (expected.empty()) expected = out;
    size_t differing = 0;
    for (size_t i = 0; i < out.size(); ++i) differing += out[i] != expected[i];
    EXPECT_LE(differing, row.is_exact ? 0 : out.size() / 100);
  });
}

TEST(PackKeys, RefusesWhatItsPartsRefuse) {
  std::vector<bf16> x(40);
  std::vector<float> turns(20);
  const PackKeysParams p{.x = {x.data(), {1, 40}},
                         .norm_weight = {x.data(), 40},
                         .cos = {turns.data(), {1, 20}},
                         .sin = {turns.data(), {1, 20}}};
  EXPECT_FALSE(check(p).ok());  // no whole group
}

}  // namespace deepinfer
