// SPDX-License-Identifier: MIT
// Whether the machine's bf16 dot product does what its documentation says: adds the product of the upper halves, rounds
// to nearest even, adds that of the lower halves, rounds again. Kernels of level bf16 give the bits of the other levels
// only then.
#include <immintrin.h>

namespace deepinfer {

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

}  // namespace deepinfer
