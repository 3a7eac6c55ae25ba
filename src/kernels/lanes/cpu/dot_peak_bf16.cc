// SPDX-License-Identifier: MIT
#include "kernels/lanes/cpu/lanes_bf16.h"

#include "kernels/lanes/fma_peak.h"

namespace deepinfer {

float dot_rounds_bf16(int64_t rounds) {
  V16 acc[16];
  for (V16& a : acc) a = zero16();
  Pairs x{_mm512_set1_epi16(0x3F80)}, y{_mm512_set1_epi16(0x2F80)};
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (V16& a : acc) a = add_pair_products(a, x, y);
    asm volatile("" : "+v"(x.v));
  }
  V16 sum = zero16();
  for (const V16& a : acc) sum = add(sum, a);
  return fold(sum);
}

}  // namespace deepinfer
