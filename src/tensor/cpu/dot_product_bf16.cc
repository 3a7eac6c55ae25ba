// SPDX-License-Identifier: MIT
// Whether the machine's bf16 dot product does what its documentation says: adds the product of the upper halves, rounds
// to nearest even, adds that of the lower halves, rounds again. Kernels of level bf16 give the bits of the other levels
// only then.
#include <immintrin.h>
#include <x86intrin.h>

#include <algorithm>
#include <cstdint>

namespace deepinfer {
namespace {

constexpr int kSums = 16, kRounds = 32;

// Ticks of a few hundred independent instructions, dot products of pairs or multiply-adds.
template <bool kIsDot>
uint64_t measure_ticks() {
  __m512 sums[kSums];
  for (__m512& sum : sums) sum = _mm512_set1_ps(1.f);
  __m512i x = _mm512_set1_epi16(0x3F80), y = _mm512_set1_epi16(0x3F80);
  const uint64_t begin = __rdtsc();
  for (int i = 0; i < kRounds; ++i) {
#pragma GCC unroll 16
    for (__m512& sum : sums) {
      if constexpr (kIsDot) sum = _mm512_dpbf16_ps(sum, (__m512bh)x, (__m512bh)y);
      else sum = _mm512_fmadd_ps(_mm512_castsi512_ps(x), _mm512_castsi512_ps(y), sum);
    }
    asm volatile("" : "+v"(x), "+v"(y));
  }
  __m512 all = sums[0];
  for (const __m512& sum : sums) all = _mm512_add_ps(all, sum);
  volatile float keep = _mm512_reduce_add_ps(all);
  static_cast<void>(keep);
  return __rdtsc() - begin;
}

}  // namespace

bool dot_product_rounds_each_step() {
  // Upper factors first, as bits of bf16: (sum, upper product, lower product).
  const __m512 sum = _mm512_set1_ps(1.f);
  const __m512i one = _mm512_set1_epi16(0x3F80);
  // 1 + 2^-24 is a tie and stays 1, twice; any wider sum gives 1 + 2^-23.
  const __m512i tiny = _mm512_set1_epi16(0x3380);
  // 1 + 1.5 * 2^-24 rounds up, then less 1 leaves 2^-23; the other order leaves 1.5 * 2^-24.
  const __m512i mixed = _mm512_set1_epi32(0x33C0BF80);
  volatile float ties = _mm512_cvtss_f32(_mm512_dpbf16_ps(sum, (__m512bh)tiny, (__m512bh)one));
  volatile float order = _mm512_cvtss_f32(_mm512_dpbf16_ps(sum, (__m512bh)mixed, (__m512bh)one));
  return ties == 1.f && order == 0x1p-23f;
}

// The quickest of some tries each, so that other work on the machine does not count. Both ways give the same bits.
bool dot_product_outpaces_multiply_adds() {
  uint64_t dots = ~uint64_t{0}, multiply_adds = ~uint64_t{0};
  for (int i = 0; i < 16; ++i) {
    dots = std::min(dots, measure_ticks<true>());
    multiply_adds = std::min(multiply_adds, measure_ticks<false>());
  }
  return dots < 2 * multiply_adds;  // a dot product does the work of two
}

}  // namespace deepinfer
