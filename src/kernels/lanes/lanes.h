// SPDX-License-Identifier: MIT
// The one order in which fp32 sums are taken. Term k goes to lane k mod 16, each lane adds its terms in ascending k,
// and the sixteen lanes are folded as 16 -> 8 -> 4 -> 2 -> 1 (lane i with lane i + half). It is what one 512-bit or two
// 256-bit registers do; a plain loop does the same, and so does any split over rows or threads. Products are rounded to
// fp32 before they are added; where both factors have at most 12 significant bits (bf16, e4m3, e2m1 with power-of-two
// scales) they are exact, and a fused multiply-add gives the same bits.
#pragma once

#include <cstdint>

namespace deepinfer {

inline constexpr int kNumLanes = 16;

class LaneSum {
 public:
  void add(int64_t k, float term) { lane_[k % kNumLanes] += term; }
  float total() const {
    float fold[kNumLanes];
    for (int i = 0; i < kNumLanes; ++i) fold[i] = lane_[i];
    for (int half = kNumLanes / 2; half > 0; half /= 2)
      for (int i = 0; i < half; ++i) fold[i] += fold[i + half];
    return fold[0];
  }

 private:
  float lane_[kNumLanes] = {};
};

inline float dot_in_lanes(const float* a, const float* b, int64_t size) {
  LaneSum sum;
  for (int64_t k = 0; k < size; ++k) sum.add(k, a[k] * b[k]);
  return sum.total();
}

}  // namespace deepinfer
