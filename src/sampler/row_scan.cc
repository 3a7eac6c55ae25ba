// SPDX-License-Identifier: MIT
#include "sampler/row_scan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "kernels/lanes/exponential.h"
#include "kernels/lanes/lanes.h"

namespace deepinfer {
namespace {

// Four values a register: what the x86-64-v2 baseline has, spelled as the compilers' vector extension.
using Float4 = float __attribute__((vector_size(16)));
using Int4 = int32_t __attribute__((vector_size(16)));
constexpr size_t kWide = 4;  // registers a step
constexpr size_t kStep = 4 * kWide;
constexpr size_t kSumBlock = 1024;  // values summed in fp32 before double takes over

template <typename Vector>
Vector load(const float* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

Float4 splat(float x) { return Float4{x, x, x, x}; }

// exp_in_lanes (kernels/lanes/exponential.h) on four values, operation by operation.
Float4 exp4(Float4 x) {
  x = x < kExpLow ? splat(kExpLow) : x;
  x = x > kExpHigh ? splat(kExpHigh) : x;
  const Float4 shifted = x * kLog2E + kRoundMagic;
  const Int4 n = std::bit_cast<Int4>(shifted) - std::bit_cast<int32_t>(kRoundMagic);
  const Float4 rounded = shifted - kRoundMagic;
  Float4 r = x - rounded * kLn2High;
  r = r - rounded * kLn2Low;
  Float4 y = splat(kExpPoly[0]);
  for (int i = 1; i < 6; ++i) y = y * r + kExpPoly[i];
  y = y * (r * r) + r;
  y = y + 1.f;
  const Int4 first = n >> 1, second = n - first;
  y = y * std::bit_cast<Float4>((first + 127) << 23);
  return y * std::bit_cast<Float4>((second + 127) << 23);
}

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

}  // namespace

bool is_finite(std::span<const float> row) {
  constexpr int32_t kInfinity = 0x7F800000;
  Int4 found[kWide] = {};
  size_t i = 0;
  for (; i + kStep <= row.size(); i += kStep)
    for (size_t w = 0; w < kWide; ++w) {
      const Int4 bits = load<Int4>(row.data() + i + 4 * w);
      found[w] |= (bits & 0x7FFFFFFF) >= kInfinity;
    }
  const Int4 any = (found[0] | found[1]) | (found[2] | found[3]);
  int32_t bad = any[0] | any[1] | any[2] | any[3];
  for (; i < row.size(); ++i) bad |= (std::bit_cast<int32_t>(row[i]) & 0x7FFFFFFF) >= kInfinity;
  return bad == 0;
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
    const Int4 equal = load<Float4>(row.data() + i) == value;
    if (equal[0] | equal[1] | equal[2] | equal[3]) break;
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

}  // namespace deepinfer
