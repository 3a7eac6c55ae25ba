// SPDX-License-Identifier: MIT
#include "kernels/top_k/top_k.h"

#include <algorithm>

#include "kernels/op_cases.h"

namespace deepinfer {
namespace {
using namespace testing_ops;

// By sorting: higher score first, then the lower index.
std::vector<int32_t> sorted_best(const float* scores, int64_t count, int64_t k) {
  std::vector<int32_t> order(static_cast<size_t>(count));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return scores[a] > scores[b]; });
  order.resize(static_cast<size_t>(std::min(count, k)));
  std::sort(order.begin(), order.end());
  order.resize(static_cast<size_t>(k), kNoEntry);
  return order;
}
}  // namespace

TEST(TopK, EqualsASortWithManyTies) {
  Rng rng(71);
  for (const int64_t entries : {1, 15, 16, 17, 100, 5000}) {
    for (const int64_t k : {1, 16, 512}) {
      for (const int distinct : {1, 3, 100000}) {
        std::vector<float> scores(static_cast<size_t>(3 * entries));
        for (float& s : scores)
          s = (static_cast<float>(rng.below(static_cast<uint64_t>(distinct))) - 1) * 0.25f *
              (rng.below(2) ? 1.f : -1.f);
        const std::vector<int32_t> visible = {static_cast<int32_t>(entries), static_cast<int32_t>(entries / 2), 0};
        on_every_row<TopKParams>(top_k_rows(), [&](const auto& row, const ExecutionContext& context) {
          std::vector<int32_t> out(static_cast<size_t>(3 * k), 99);
          row.launch(context, {.scores = {scores.data(), {3, entries}},
                               .num_visible = {visible.data(), {3}},
                               .out = {out.data(), {3, k}}});
          for (int64_t t = 0; t < 3; ++t)
            EXPECT_EQ(std::vector<int32_t>(out.begin() + t * k, out.begin() + (t + 1) * k),
                      sorted_best(scores.data() + t * entries, visible[static_cast<size_t>(t)], k));
        });
      }
    }
  }
}

// Many scores: rows that look at a sample first must find the same, whatever the scores are like.
TEST(TopK, EveryRowEqualsTheReferenceOnManyScores) {
  Rng rng(73);
  const int64_t entries = 40003;
  const std::vector<int32_t> visible = {static_cast<int32_t>(entries)};
  const float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  for (const char* kind : {"spread", "few values", "all equal", "ascending", "rare peaks", "odd"}) {
    std::vector<float> scores = testing_ops::random_f32(rng, entries, 1.f);
    for (int64_t i = 0; i < entries; ++i) {
      float& score = scores[static_cast<size_t>(i)];
      if (kind == std::string("few values")) score = std::round(score);
      if (kind == std::string("all equal")) score = -0.5f;
      if (kind == std::string("ascending")) score = static_cast<float>(i) * 0.25f;
      if (kind == std::string("rare peaks")) score = i % 97 == 5 ? score : -infinity;
      if (kind == std::string("odd") && i % 3 != 0)
        score = i % 3 == 1 ? std::copysign(nan, score) : std::copysign(0.f, score);
    }
    for (const int64_t k : {1, 512, 5000}) {
      SCOPED_TRACE(std::string(kind) + " " + std::to_string(k));
      testing_ops::expect_rows_agree(top_k_rows(), std::vector<int32_t>(static_cast<size_t>(k)), [&](auto& out) {
        return TopKParams{
            .scores = {scores.data(), {1, entries}}, .num_visible = {visible.data(), {1}}, .out = {out.data(), {1, k}}};
      });
      for (const int block_size : {8, 3}) {
        testing_ops::expect_rows_agree(candidate_blocks_rows(), std::vector<int32_t>(static_cast<size_t>(k)),
                                       [&](auto& out) {
                                         return CandidateBlocksParams{.scores = {scores.data(), {1, entries}},
                                                                      .num_visible = {visible.data(), {1}},
                                                                      .block_size = block_size,
                                                                      .out = {out.data(), {1, k}}};
                                       });
      }
    }
  }
}

TEST(TopK, TakesEverythingWithoutScoresWhenItFits) {
  const std::vector<int32_t> visible = {3};
  on_every_row<TopKParams>(top_k_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<int32_t> out(5);
    const TopKParams p{.num_visible = {visible.data(), {1}}, .out = {out.data(), {1, 5}}};
    ASSERT_TRUE(check(p).ok());
    row.launch(context, p);
    EXPECT_EQ(out, (std::vector<int32_t>{0, 1, 2, kNoEntry, kNoEntry}));
  });
}

TEST(TopK, CandidatesLimitTheChoiceAndKeepEntryNumbers) {
  const std::vector<int32_t> candidates = {1, 3, kNoEntry}, visible = {14};
  const std::vector<float> scores = {5,  1,  2,    9,    4,    9,
                                     77, 77, 1e9f, 1e9f, 1e9f, 1e9f};  // blocks of 4: entries 4..7, 12..13
  on_every_row<TopKParams>(top_k_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<int32_t> out(3);
    row.launch(context, {.scores = {scores.data(), {1, 12}},
                         .num_visible = {visible.data(), {1}},
                         .candidates = {candidates.data(), {1, 3}},
                         .candidate_block_size = 4,
                         .out = {out.data(), {1, 3}}});
    EXPECT_EQ(out, (std::vector<int32_t>{4, 7, 13}));
  });
}

TEST(TopK, CandidatesNeedScoresOnlyWhereMoreIsVisibleThanFits) {
  const std::vector<int32_t> candidates = {0, 1};
  std::vector<int32_t> visible = {3}, out(3);
  TopKParams p{.num_visible = {visible.data(), {1}},
               .candidates = {candidates.data(), {1, 2}},
               .candidate_block_size = 4,
               .out = {out.data(), {1, 3}}};
  EXPECT_TRUE(check(p).ok());
  visible[0] = 4;
  EXPECT_EQ(check_values(p).message(), "scores: has no data, but token 0 sees 4 entries");
}

TEST(TopK, RefusesScoresShorterThanWhatIsVisible) {
  std::vector<float> scores(10);
  std::vector<int32_t> visible = {11}, out(4);
  EXPECT_EQ(check_values(TopKParams{.scores = {scores.data(), {1, 10}},
                                    .num_visible = {visible.data(), {1}},
                                    .out = {out.data(), {1, 4}}})
                .message(),
            "scores: entries is 10, expected at least num_visible(0) = 11");
}

// Golden keep masks are per position: kept = its block is listed (and, for positions beyond the visible ones, not
// kept).
TEST(CandidateBlocks, EqualTheGoldenChoice) {
  const auto scores_bf16 = units().raw<bf16>("cand.scores");
  const auto visible = units().raw<int32_t>("cand.n_visible");
  std::vector<float> scores;
  for (const bf16 s : scores_bf16) scores.push_back(to_float(s));
  for (const int64_t k : {1, 3, 5, 20}) {
    const auto keep = units().raw<uint8_t>("cand.keep_top" + std::to_string(k));
    on_every_row<CandidateBlocksParams>(candidate_blocks_rows(), [&](const auto& row, const ExecutionContext& context) {
      std::vector<int32_t> out(static_cast<size_t>(6 * k));
      row.launch(context, {.scores = {scores.data(), {6, 45}},
                           .num_visible = {visible.data(), {6}},
                           .block_size = 8,
                           .out = {out.data(), {6, k}}});
      for (int64_t t = 0; t < 6; ++t) {
        const auto begin = out.begin() + t * k, end = begin + k;
        EXPECT_TRUE(std::is_sorted(begin, std::find(begin, end, kNoEntry)));
        for (int64_t j = 0; j < visible[static_cast<size_t>(t)]; ++j)
          EXPECT_EQ(std::find(begin, end, static_cast<int32_t>(j / 8)) != end,
                    keep[static_cast<size_t>(t * 45 + j)] != 0)
              << "k " << k << " token " << t << " position " << j;
      }
    });
  }
}

}  // namespace deepinfer
