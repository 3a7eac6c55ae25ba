// SPDX-License-Identifier: MIT
// Passes over one row of logits. Sums run in a fixed order: sixteen fp32 lanes within 1,024 values, those in double, so
// a result depends on the row alone. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace deepinfer {

// All that a greedy row needs, from one walk.
struct RowScan {
  bool is_finite = true;  // no NaN, no infinity; if false the rest means nothing
  float max = 0;
  TokenId first = -1;  // the lowest index that holds max
};
// Precondition: the row is not empty.
RowScan scan_row(std::span<const float> row);

// The largest value, -infinity for none. No NaN may be in the row.
float max_of(std::span<const float> row);

// The lowest index that holds `value`. Precondition: one does.
TokenId first_of(std::span<const float> row, float value);

// Sum over the row of exp((row[i] - max) / temperature); -infinity counts 0.
double exp_sum(std::span<const float> row, float max, float temperature);

// True if one of the sixteen values is at least `least`. No NaN.
bool any_at_least(const float* sixteen, float least);

// Calls visit(i) for each i with row[i] >= least, in order. `least` is read again after each call, so visit may raise
// it.
template <typename Visit>
void for_each_at_least(std::span<const float> row, const float& least, const Visit& visit) {
  constexpr size_t kRun = 16;
  for (size_t begin = 0; begin < row.size(); begin += kRun) {
    const size_t end = begin + kRun < row.size() ? begin + kRun : row.size();
    if (end - begin == kRun && !any_at_least(row.data() + begin, least)) continue;
    for (size_t i = begin; i < end; ++i)
      if (row[i] >= least) visit(i);
  }
}

// Weights exp((row[i] - max) / temperature) added up by how far the exponent lies below 0: bin b holds exponents in
// (-(b + 1) / kBinsPerUnit, -b / kBinsPerUnit]. Exponents beyond the last bin are left out.
inline constexpr int kBinsPerUnit = 16, kNumWeightBins = 24 * kBinsPerUnit;
void bin_weights(std::span<const float> row, float max, float temperature, std::span<double, kNumWeightBins> bins);

}  // namespace deepinfer
