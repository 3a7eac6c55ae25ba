// SPDX-License-Identifier: MIT
#include <immintrin.h>

#include "kernels/lanes/fma_peak.h"

namespace deepinfer {

float dot_rounds_vnni(int64_t rounds) {
  __m512i acc[16], x = _mm512_set1_epi8(1), y = _mm512_set1_epi8(-1);
  for (__m512i& a : acc) a = _mm512_setzero_si512();
  for (int64_t i = 0; i < rounds; ++i) {
#pragma GCC unroll 16
    for (__m512i& a : acc) a = _mm512_dpbusd_epi32(a, x, y);
    asm volatile("" : "+v"(x));
  }
  __m512i sum = _mm512_setzero_si512();
  for (const __m512i& a : acc) sum = _mm512_add_epi32(sum, a);
  return static_cast<float>(_mm512_reduce_add_epi32(sum));
}

}  // namespace deepinfer
