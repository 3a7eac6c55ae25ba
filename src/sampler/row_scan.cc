// SPDX-License-Identifier: MIT
#include "sampler/row_scan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/lanes/lanes.h"
#include "sampler/float4.h"

namespace deepinfer {
namespace {

constexpr size_t kWide = 4;  // registers a step
constexpr size_t kStep = 4 * kWide;
constexpr size_t kSumBlock = 1024;  // values summed in fp32 before double takes over

// Lanes 0..15 of a block of values, folded as LaneSum folds.
float exp_sum_block(std::span<const float> row, float max, float temperature) {
  Float4 lanes[kWide] = {};
  size_t i = 0;
  for (; i + kStep <= row.size(); i += kStep)
    for (size_t w = 0; w < kWide; ++w) lanes[w] += exp4((load<Float4>(row.data() + i + 4 * w) - max) / temperature);
  float fold[kNumLanes];
  static_assert(sizeof lanes == sizeof fold);
  std::memcpy(fold, lanes, sizeof fold);
  for (size_t lane = 0; i < row.size(); ++i, ++lane) fold[lane] += exp_in_lanes((row[i] - max) / temperature);
  for (int half = kNumLanes / 2; half > 0; half /= 2)
    for (int k = 0; k < half; ++k) fold[k] += fold[k + half];
  return fold[0];
}

// The largest value; a bit of `found` for a NaN or an infinity, whose difference with itself is no zero.
float max_and_faults(std::span<const float> block, Int4* found) {
  const float lowest = -std::numeric_limits<float>::infinity();
  Float4 max[kWide] = {splat(lowest), splat(lowest), splat(lowest), splat(lowest)};
  size_t i = 0;
  for (; i + kStep <= block.size(); i += kStep)
    for (size_t w = 0; w < kWide; ++w) {
      const Float4 values = load<Float4>(block.data() + i + 4 * w);
      found[w] |= std::bit_cast<Int4>(values - values);
      max[w] = values > max[w] ? values : max[w];
    }
  float largest = lowest;
  for (const Float4& m : max)
    for (int k = 0; k < 4; ++k) largest = std::max(largest, m[k]);
  for (; i < block.size(); ++i) {
    found[0][0] |= std::bit_cast<int32_t>(block[i] - block[i]);
    largest = std::max(largest, block[i]);
  }
  return largest;
}

}  // namespace

// Block by block, so that the place of the maximum is looked for in one block, which is still in the first cache.
RowScan scan_row(std::span<const float> row) {
  CHECK(!row.empty());
  constexpr size_t kBlock = 2048;
  RowScan scan{.max = -std::numeric_limits<float>::infinity()};
  size_t best = 0;
  Int4 found[kWide] = {};
  for (size_t begin = 0; begin < row.size(); begin += kBlock) {
    const float max = max_and_faults(row.subspan(begin, std::min(kBlock, row.size() - begin)), found);
    if (max > scan.max) scan.max = max, best = begin;
  }
  scan.is_finite = !any((found[0] | found[1]) | (found[2] | found[3]));
  if (scan.is_finite) scan.first = static_cast<TokenId>(best) + first_of(row.subspan(best), scan.max);
  return scan;
}

float max_of(std::span<const float> row) {
  const float lowest = -std::numeric_limits<float>::infinity();
  Float4 max[kWide] = {splat(lowest), splat(lowest), splat(lowest), splat(lowest)};
  size_t i = 0;
  for (; i + kStep <= row.size(); i += kStep)
    for (size_t w = 0; w < kWide; ++w) {
      const Float4 values = load<Float4>(row.data() + i + 4 * w);
      max[w] = values > max[w] ? values : max[w];
    }
  float largest = lowest;
  for (const Float4& m : max)
    for (int k = 0; k < 4; ++k) largest = std::max(largest, m[k]);
  for (; i < row.size(); ++i) largest = std::max(largest, row[i]);
  return largest;
}

TokenId first_of(std::span<const float> row, float value) {
  size_t i = 0;
  for (; i + 4 <= row.size(); i += 4) {
    if (any(load<Float4>(row.data() + i) == value)) break;
  }
  for (; i < row.size(); ++i)
    if (row[i] == value) return static_cast<TokenId>(i);
  CHECK(false);
}

double exp_sum(std::span<const float> row, float max, float temperature) {
  double total = 0;
  for (size_t i = 0; i < row.size(); i += kSumBlock)
    total += double{exp_sum_block(row.subspan(i, std::min(kSumBlock, row.size() - i)), max, temperature)};
  return total;
}

bool any_at_least(const float* sixteen, float least) {
  const Int4 found = (load<Float4>(sixteen) >= least) | (load<Float4>(sixteen + 4) >= least) |
                     (load<Float4>(sixteen + 8) >= least) | (load<Float4>(sixteen + 12) >= least);
  return any(found);
}

void bin_weights(std::span<const float> row, float max, float temperature, std::span<double, kNumWeightBins> bins) {
  std::ranges::fill(bins, 0.0);
  const auto add = [&](float exponent, float weight) {
    const float bin = -exponent * kBinsPerUnit;
    if (bin < kNumWeightBins) bins[static_cast<size_t>(bin)] += double{weight};
  };
  size_t i = 0;
  for (; i + 4 <= row.size(); i += 4) {
    const Float4 exponent = (load<Float4>(row.data() + i) - max) / temperature;
    if (!any(exponent > -static_cast<float>(kNumWeightBins) / kBinsPerUnit)) continue;
    const Float4 weight = exp4(exponent);
    for (int k = 0; k < 4; ++k) add(exponent[k], weight[k]);
  }
  for (; i < row.size(); ++i) add((row[i] - max) / temperature, exp_in_lanes((row[i] - max) / temperature));
}

}  // namespace deepinfer
