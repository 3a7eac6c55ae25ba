// SPDX-License-Identifier: MIT
#include "kernels/lanes/fma_peak.h"

#include "kernels/lanes/cpu/lanes_avx2.h"

namespace deepinfer {

float fma_rounds_avx2(int64_t rounds) {
  constexpr int kChains = 16, kSplit = sizeof(V16) == 64 && kPanelX > 2 ? 16 : 6;  // what the registers hold
  V16 acc[kSplit];
  for (V16& a : acc) a = set16(1.f);
  const V16 x = set16(1.0000001f), y = set16(1e-9f);
  for (int64_t i = 0; i < rounds * kChains; i += kSplit) {
#pragma GCC unroll 16
    for (V16& a : acc) a = add_exact_product(y, a, x);
  }
  V16 sum = zero16();
  for (const V16& a : acc) sum = add(sum, a);
  return fold(sum);
}

}  // namespace deepinfer
