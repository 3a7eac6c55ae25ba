// SPDX-License-Identifier: MIT
#include <immintrin.h>

#include "kernels/top_k/cpu/collect.h"

namespace deepinfer {
namespace {

int64_t collect(const float* scores, int64_t size, float threshold, uint32_t base, uint32_t* out) {
  const __m256 limit = _mm256_set1_ps(threshold);
  int64_t count = 0, i = 0;
  for (; i + 8 <= size; i += 8) {
    int taken = _mm256_movemask_ps(_mm256_cmp_ps(_mm256_loadu_ps(scores + i), limit, _CMP_NLT_UQ));
    for (; taken != 0; taken &= taken - 1)
      out[count++] =
          base + static_cast<uint32_t>(i) + static_cast<uint32_t>(__builtin_ctz(static_cast<unsigned>(taken)));
  }
  for (; i < size; ++i)
    if (!(scores[i] < threshold)) out[count++] = base + static_cast<uint32_t>(i);
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

const CollectKernels& collect_kernels_avx2() { return kCollectKernels; }

}  // namespace deepinfer
