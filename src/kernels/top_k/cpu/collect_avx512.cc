// SPDX-License-Identifier: MIT
#include <immintrin.h>

#include "kernels/top_k/cpu/collect.h"

namespace deepinfer {
namespace {

int64_t collect(const float* scores, int64_t size, float threshold, uint32_t base, uint32_t* out) {
  const __m512 limit = _mm512_set1_ps(threshold);
  __m512i index = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(base)),
                                   _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
  int64_t count = 0;
  for (int64_t i = 0; i < size; i += 16, index = _mm512_add_epi32(index, _mm512_set1_epi32(16))) {
    const __mmask16 present = size - i >= 16 ? 0xFFFF : static_cast<__mmask16>((1u << (size - i)) - 1);
    const __mmask16 taken =
        _mm512_mask_cmp_ps_mask(present, _mm512_maskz_loadu_ps(present, scores + i), limit, _CMP_NLT_UQ);
    if (taken == 0) continue;
    _mm512_storeu_si512(out + count, _mm512_maskz_compress_epi32(taken, index));
    count += __builtin_popcount(taken);
  }
  return count;
}

void highest_of_8(const float* scores, int64_t size, float* out) {
  const __m256 none = _mm256_set1_ps(-__builtin_inff());
  for (int64_t i = 0; i < size; i += 8) {
    const __m256 eight = _mm256_max_ps(_mm256_loadu_ps(scores + i), none);  // the second operand where one is NaN
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1)),
                 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    out[i / 8] = _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
  }
}

constexpr CollectKernels kCollectKernels = {collect, highest_of_8};

}  // namespace

const CollectKernels& collect_kernels_avx512() { return kCollectKernels; }

}  // namespace deepinfer
