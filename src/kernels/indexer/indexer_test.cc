// SPDX-License-Identifier: MIT
#include "kernels/indexer/indexer.h"

#include "kernels/op_cases.h"
#include "kernels/quantize/quantize.h"

namespace deepinfer {
namespace {
using namespace testing_ops;

// Keys of two lanes in shuffled blocks, with queries.
struct Case {
  Case(Rng& rng, int64_t tokens_in, int64_t heads_in, int64_t head_dim_in, int64_t entries_in, int32_t rows_per_block)
      : tokens(tokens_in), heads(heads_in), head_dim(head_dim_in), entries(entries_in) {
    const int64_t blocks = ceil_div<int64_t>(entries, rows_per_block),
                  bytes = row_bytes(RowFormat::kFp4Group32, head_dim);
    for (int64_t i = 0; i < 2 * blocks; ++i) table.push_back(static_cast<int32_t>(2 * blocks - 1 - i));
    plane.resize(static_cast<size_t>(2 * blocks * rows_per_block * bytes + 5));
    keys = {plane.data(), rows_per_block * bytes, bytes, rows_per_block, {table.data(), {2, blocks}}};
    q = random_bf16(rng, tokens * heads * head_dim, 1.f);
    weight = random_bf16(rng, tokens * heads, 1.f);
    key_values = random_bf16(rng, 2 * entries * head_dim, 1.f);
    Scratch scratch;
    const ExecutionContext context{nullptr, &scratch};
    round_rows_rows()[0].launch(context, {.format = RowFormat::kFp4Group32,
                                          .x = {q.data(), {tokens * heads, head_dim}},
                                          .out = {q.data(), {tokens * heads, head_dim}}});
    round_rows_rows()[0].launch(context, {.format = RowFormat::kFp4Group32,
                                          .x = {key_values.data(), {2 * entries, head_dim}},
                                          .out = {key_values.data(), {2 * entries, head_dim}}});
    for (int64_t l = 0; l < 2; ++l)
      for (int64_t j = 0; j < entries; ++j)
        pack_rows_rows()[0].launch(context, {.format = RowFormat::kFp4Group32,
                                             .x = {key_values.data() + (l * entries + j) * head_dim, {1, head_dim}},
                                             .base = plane.data() + keys.offset_bytes(l, j)});
    for (int64_t t = 0; t < tokens; ++t) {
      lane.push_back(static_cast<int32_t>(t % 2));
      num_visible.push_back(
          static_cast<int32_t>(t + 1 == tokens ? entries : rng.below(static_cast<uint64_t>(entries) + 1)));
    }
  }
  IndexScoresParams params(std::vector<float>& scores, ScoreRounding rounding) const {
    return {.q = {q.data(), {tokens, heads, head_dim}},
            .weight = {weight.data(), {tokens, heads}},
            .weight_scale = 0.25f,
            .rounding = rounding,
            .keys = keys,
            .lane = {lane.data(), {tokens}},
            .num_visible = {num_visible.data(), {tokens}},
            .scores = {scores.data(), {tokens, entries}}};
  }
  int64_t tokens, heads, head_dim, entries;
  std::vector<int32_t> table, lane, num_visible;
  std::vector<uint8_t> plane;
  std::vector<bf16> q, weight, key_values;
  ConstPaged keys;
};
}  // namespace

TEST(IndexScores, AreTheWeightedSumsOfPositiveProducts) {
  Rng rng(61);
  const Case c(rng, 3, 4, 64, 37, 8);
  on_every_row<IndexScoresParams>(index_scores_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<float> scores(static_cast<size_t>(c.tokens * c.entries), -7.f);
    row.launch(context, c.params(scores, ScoreRounding::kNone));
    for (int64_t t = 0; t < c.tokens; ++t) {
      for (int64_t j = 0; j < c.entries; ++j) {
        const float actual = scores[static_cast<size_t>(t * c.entries + j)];
        if (j >= c.num_visible[static_cast<size_t>(t)]) {
          EXPECT_EQ(actual, -7.f);
          continue;
        }
        double expected = 0, magnitude = 0;
        for (int64_t h = 0; h < c.heads; ++h) {
          double dot = 0;
          for (int64_t d = 0; d < c.head_dim; ++d)
            dot += double(to_float(c.q[static_cast<size_t>((t * c.heads + h) * c.head_dim + d)])) *
                   to_float(c.key_values[static_cast<size_t>(
                       (c.lane[static_cast<size_t>(t)] * c.entries + j) * c.head_dim + d)]);
          const double term = std::max(dot, 0.0) * to_float(c.weight[static_cast<size_t>(t * c.heads + h)]) * 0.25;
          expected += term;
          magnitude += std::fabs(term);
        }
        EXPECT_NEAR(actual, expected, magnitude * 0x1p-18 + 1e-30);
      }
    }
  });
}

TEST(IndexScores, EveryRowEqualsTheReferenceOnOddSizes) {
  Rng rng(62);
  for (const ScoreRounding rounding : {ScoreRounding::kNone, ScoreRounding::kReference}) {
    for (const auto& [heads, head_dim] : {std::pair<int64_t, int64_t>{1, 32}, {4, 32}, {5, 96}, {32, 128}, {35, 160}}) {
      const Case c(rng, 4, heads, head_dim, 53, 16);
      expect_rows_agree(index_scores_rows(), std::vector<float>(static_cast<size_t>(4 * 53), 1.f),
                        [&](auto& scores) { return c.params(scores, rounding); });
    }
  }
}

TEST(IndexScores, CandidatesAreScoredInTheirListedOrder) {
  Rng rng(63);
  const Case c(rng, 2, 4, 32, 40, 8);
  const std::vector<int32_t> candidates = {0, 3, kNoEntry, 1, 4, 9};
  std::vector<int32_t> visible = {15, 38};
  on_every_row<IndexScoresParams>(index_scores_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<float> all(80), some(2 * 12, -7.f);
    IndexScoresParams p = c.params(all, ScoreRounding::kNone);
    p.num_visible = {visible.data(), {2}};
    row.launch(context, p);
    p.candidates = {candidates.data(), {2, 3}};
    p.candidate_block_size = 4;
    p.scores = {some.data(), {2, 12}};
    ASSERT_TRUE(check(p).ok()) << check(p).message();
    row.launch(context, p);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(some[i], all[i]);  // block 0
      if (i < 3) {
        EXPECT_EQ(some[4 + i], all[12 + i]);
      }  // block 3, visible part
      else
        EXPECT_TRUE(std::isinf(some[4 + i]));
      EXPECT_EQ(some[8 + i], -7.f);  // no third block
      EXPECT_EQ(some[12 + i], all[40 + 4 + i]);
      if (i < 2) {
        EXPECT_EQ(some[20 + i], all[40 + 36 + i]);
      } else EXPECT_TRUE(std::isinf(some[20 + i]));
    }
  });
}

// Scales of the groups of a query and of a key from near to far apart, and groups of zeros.
TEST(IndexScores, EveryRowEqualsTheReferenceWhateverTheScales) {
  Rng rng(64);
  for (const int spread : {1, 3, 5, 12}) {
    for (const int64_t heads : {7, 32}) {
      Case c(rng, 3, heads, 128, 150, 50);
      for (bf16& value : c.q)
        if (&value - c.q.data() < 64 && spread == 3) value = {0};
      const int64_t bytes = row_bytes(RowFormat::kFp4Group32, 128);
      for (int64_t row = 0; row < 300; ++row) {
        uint8_t* key = c.plane.data() + row * bytes;
        for (int g = 0; g < 4; ++g)
          if (rng.below(4) == 0)
            key[64 + g] =
                static_cast<uint8_t>(127 - spread + static_cast<int>(rng.below(2 * static_cast<uint64_t>(spread))));
        if (rng.below(8) == 0) std::fill(key, key + 32, uint8_t{0x80});
      }
      for (const ScoreRounding rounding : {ScoreRounding::kNone, ScoreRounding::kReference}) {
        SCOPED_TRACE(std::to_string(spread) + " " + std::to_string(heads));
        expect_rows_agree(index_scores_rows(), std::vector<float>(static_cast<size_t>(3 * 150), 1.f),
                          [&](auto& scores) { return c.params(scores, rounding); });
      }
    }
  }
}

// Units of queries, keys and weights so far from one that products and sums leave the normal numbers, or nearly so.
TEST(IndexScores, EveryRowEqualsTheReferenceAtTheEndsOfTheRange) {
  Rng rng(66);
  for (const int exponent : {-59, -32, -30, -28, 27, 30, 32, 59}) {
    Case c(rng, 2, 5, 128, 70, 35);
    for (bf16& value : c.weight) value = to_bf16(std::ldexp(std::fabs(to_float(value)), exponent));
    for (bf16& value : c.q) value = to_bf16(std::ldexp(to_float(value), exponent));
    const int64_t bytes = row_bytes(RowFormat::kFp4Group32, 128);
    for (const int key_exponent : {-exponent, exponent}) {
      for (int64_t row = 0; row < 140; ++row)
        std::fill_n(c.plane.data() + row * bytes + 64, 4, static_cast<uint8_t>(127 + key_exponent));
      SCOPED_TRACE(std::to_string(exponent) + " " + std::to_string(key_exponent));
      expect_rows_agree(index_scores_rows(), std::vector<float>(static_cast<size_t>(2 * 70), 1.f),
                        [&](auto& scores) { return c.params(scores, ScoreRounding::kNone); });
    }
  }
}

// The widths that tensor rows are made for: tokens of one lane in runs of every length, lists of candidates, and a
// token the same alone and among others. Rounded scores of such rows may be a step off where sums meet a rounding
// border.
TEST(IndexScores, EveryRowAgreesAtTheReleasedWidths) {
  Rng rng(65);
  const int64_t tokens = 13, entries = 500, blocks = 9;
  Case c(rng, tokens, 32, 128, entries, 64);
  c.lane = {0, 0, 0, 1, 0, 1, 1, 1, 1, 1, 1, 0, 0};
  std::vector<int32_t> candidates;
  for (int64_t t = 0; t < tokens; ++t)
    for (int32_t b = 0; b < blocks; ++b)
      candidates.push_back(b * 7 * 8 < c.num_visible[static_cast<size_t>(t)] && b < 8 ? b * 7 : kNoEntry);
  for (const bool lists : {false, true}) {
    const int64_t width = lists ? blocks * 8 : entries;
    const auto scores_of = [&](const auto& row, const ExecutionContext& context, int64_t first, int64_t count) {
      std::vector<float> scores(static_cast<size_t>(count * width), -7.f);
      IndexScoresParams p = c.params(scores, ScoreRounding::kReference);
      p.q = p.q.rows(first, first + count), p.weight = p.weight.rows(first, first + count);
      p.lane = p.lane.rows(first, first + count), p.num_visible = p.num_visible.rows(first, first + count);
      if (lists) p.candidates = {candidates.data() + first * blocks, {count, blocks}}, p.candidate_block_size = 8;
      p.scores = {scores.data(), {count, width}};
      EXPECT_TRUE(check(p).ok()) << check(p).message();
      row.launch(context, p);
      std::vector<bf16> rounded;
      for (const float s : scores) rounded.push_back(to_bf16(s));
      return rounded;
    };
    std::vector<bf16> expected;
    on_every_row<IndexScoresParams>(index_scores_rows(), [&](const auto& row, const ExecutionContext& context) {
      const auto all = scores_of(row, context, 0, tokens);
      if (expected.empty()) expected = all;
      if (row.is_exact) EXPECT_EQ(all, expected);
      else expect_near_exact(all, expected);
      for (const int64_t t : {3, 9})
        EXPECT_EQ(scores_of(row, context, t, 1),
                  std::vector<bf16>(all.begin() + t * width, all.begin() + (t + 1) * width));
    });
  }
}

}  // namespace deepinfer
