// SPDX-License-Identifier: MIT
// Expected values: the rules written out by sorting everything.
#include "sampler/cuts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/philox.h"
#include "sampler/row_scan.h"

namespace deepinfer {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();

std::vector<float> random_row(Rng& rng, size_t size, float scale, bool with_ties) {
  std::vector<float> row(size);
  for (float& v : row) {
    v = (rng.uniform() + rng.uniform() + rng.uniform() - 1.5f) * 2 * scale;
    if (with_ties) v = std::round(v * 4) / 4;
    if (rng.below(10) == 0) v = kMasked;
  }
  row[rng.below(size)] = 1.f;
  return row;
}

std::vector<Candidate> sorted(const std::vector<float>& row) {
  std::vector<Candidate> all;
  for (size_t i = 0; i < row.size(); ++i)
    if (row[i] != kMasked) all.push_back({row[i], static_cast<TokenId>(i)});
  std::sort(all.begin(), all.end(), is_before);
  return all;
}

// In double, by the definition.
std::vector<Candidate> cut_slowly(const SamplingParams& p, const std::vector<float>& row) {
  std::vector<Candidate> kept = sorted(row);
  const double max = double{kept[0].logit}, temperature = double{p.temperature};
  const auto weight = [&](const Candidate& c) { return std::exp((double{c.logit} - max) / temperature); };
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < kept.size()) kept.resize(static_cast<size_t>(p.top_k));
  double total = 0, running = 0;
  for (const Candidate& c : kept) total += weight(c);
  if (p.top_p < 1)
    for (size_t i = 0; i < kept.size(); ++i) {
      running += weight(kept[i]);
      if (running >= double{p.top_p} * total) {
        kept.resize(i + 1);
        break;
      }
    }
  std::erase_if(kept, [&](const Candidate& c) { return weight(c) < double{p.min_p}; });
  return kept;
}

TEST(Cuts, FollowTheDefinitionOnRandomRows) {
  Rng rng(31);
  std::vector<Candidate> got;
  int64_t num_cases = 0, num_differing = 0;
  for (int round = 0; round < 400; ++round) {
    const std::vector<float> row = random_row(rng, 1 + rng.below(3000), round % 3 == 0 ? 12.f : 2.f, round % 2 == 0);
    SamplingParams p;
    p.temperature = 0.2f + rng.uniform() * 2;
    if (rng.below(2)) p.top_k = static_cast<int32_t>(1 + rng.below(round % 5 == 0 ? 2500 : 60));
    if (rng.below(2)) p.top_p = rng.uniform();
    if (rng.below(3) == 0) p.min_p = rng.uniform() * 0.2f;
    if (!has_cuts(p)) continue;
    cut(p, row, max_of(row), got);
    std::vector<Candidate> want = cut_slowly(p, row);
    std::sort(got.begin(), got.end(), is_before);
    ++num_cases;
    // fp32 weights may move the crossing by a token when it is within rounding of the share.
    if (got != want) {
      ++num_differing;
      EXPECT_LE(std::abs(static_cast<int64_t>(got.size()) - static_cast<int64_t>(want.size())), 1);
    }
  }
  EXPECT_GT(num_cases, 250);
  EXPECT_LE(num_differing, num_cases / 100);
}

TEST(Cuts, TopKBreaksTiesByLowestId) {
  const std::vector<float> row = {1, 3, 2, 3, 2, 2, 0};
  std::vector<Candidate> got;
  first_candidates(row, 4, got);
  EXPECT_EQ(got, (std::vector<Candidate>{{3, 1}, {3, 3}, {2, 2}, {2, 4}}));
}

TEST(Cuts, TopPKeepsTheCrossingToken) {
  // Probabilities 1/2, 1/4, 1/8, 1/8.
  const std::vector<float> row = {0.f, -0.6931472f, -1.3862944f, -1.3862944f};
  SamplingParams p;
  std::vector<Candidate> got;
  for (const auto& [top_p, count] :
       {std::pair{0.f, 1u}, {0.49f, 1u}, {0.51f, 2u}, {0.74f, 2u}, {0.76f, 3u}, {0.99f, 4u}}) {
    p.top_p = top_p;
    cut(p, row, 0, got);
    EXPECT_EQ(got.size(), count) << top_p;
  }
}

TEST(Cuts, LargeAndSmallCountsSelectTheSame) {
  Rng rng(3);
  const std::vector<float> row = random_row(rng, 5000, 3, true);
  const std::vector<Candidate> all = sorted(row);
  std::vector<Candidate> got;
  for (const int64_t count : {1, 2, 1000, 1024, 1025, 3000, 10000}) {
    first_candidates(row, count, got);
    EXPECT_EQ(got, std::vector<Candidate>(
                       all.begin(), all.begin() + std::min<ptrdiff_t>(count, static_cast<ptrdiff_t>(all.size()))));
  }
}

TEST(RowScan, SumsAgreeWithDouble) {
  Rng rng(8);
  for (const size_t size : {1u, 3u, 4u, 15u, 16u, 17u, 1023u, 1025u, 40000u}) {
    std::vector<float> row = random_row(rng, size, 4, false);
    const float max = max_of(row);
    EXPECT_EQ(max, *std::max_element(row.begin(), row.end()));
    EXPECT_EQ(static_cast<size_t>(first_of(row, max)),
              static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin()));
    double want = 0;
    for (const float v : row) want += std::exp((double{v} - double{max}) / 0.7);
    EXPECT_NEAR(exp_sum(row, max, 0.7f), want, want * 2e-6);
  }
}

TEST(RowScan, FindsNonFiniteValuesAnywhere) {
  for (const size_t size : {1u, 15u, 16u, 33u})
    for (size_t at = 0; at < size; ++at)
      for (const float bad :
           {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), kMasked}) {
        std::vector<float> row(size, 3e38f);
        EXPECT_TRUE(scan_row(row).is_finite);
        row[at] = bad;
        EXPECT_FALSE(scan_row(row).is_finite) << size << " " << at;
      }
}

TEST(RowScan, OneWalkFindsTheFirstMaximumInWhicheverBlock) {
  for (const size_t size : {1u, 17u, 2047u, 2048u, 2049u, 6000u}) {
    std::vector<float> row(size, -3.f);
    EXPECT_EQ(scan_row(row).first, 0);
    for (const size_t at : {size - 1, 3 * size / 4, size / 2, size / 3, size_t{0}}) {  // the later ones are ties
      row[at] = 2.f;
      const RowScan scan = scan_row(row);
      EXPECT_TRUE(scan.is_finite);
      EXPECT_EQ(scan.max, 2.f);
      EXPECT_EQ(scan.first, static_cast<TokenId>(at)) << size;
    }
    row[size / 2] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(scan_row(row).is_finite) << size;
  }
}

}  // namespace
}  // namespace deepinfer
