// SPDX-License-Identifier: MIT
#include <immintrin.h>
#include <stdint.h>

#include "kernels/vision_attention/cpu/vision_tile.h"

namespace {

constexpr int kTile = DEEPINFER_VISION_TILE_QUERIES, kPanel = DEEPINFER_VISION_PANEL,
              kKeyBlock = DEEPINFER_VISION_KEY_BLOCK;
constexpr int kRows = 6;  // 6 x 16 results in twelve registers
static_assert(kTile % kRows == 0 && kKeyBlock % kPanel == 0);

// The vector form of exp_in_lanes (kernels/lanes/exponential.h), operation by operation.
static inline __m256 exp8(__m256 x) {
  x = _mm256_max_ps(_mm256_set1_ps(-104.f), x);
  x = _mm256_min_ps(_mm256_set1_ps(89.f), x);
  const __m256 magic = _mm256_set1_ps(12582912.f);
  const __m256 shifted = _mm256_add_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504f)), magic);
  const __m256i n = _mm256_sub_epi32(_mm256_castps_si256(shifted), _mm256_castps_si256(magic));
  const __m256 rounded = _mm256_sub_ps(shifted, magic);
  __m256 r = _mm256_sub_ps(x, _mm256_mul_ps(rounded, _mm256_set1_ps(0.693359375f)));
  r = _mm256_sub_ps(r, _mm256_mul_ps(rounded, _mm256_set1_ps(-2.12194440e-4f)));
  __m256 y = _mm256_set1_ps(1.9875691500e-4f);
  y = _mm256_add_ps(_mm256_mul_ps(y, r), _mm256_set1_ps(1.3981999507e-3f));
  y = _mm256_add_ps(_mm256_mul_ps(y, r), _mm256_set1_ps(8.3334519073e-3f));
  y = _mm256_add_ps(_mm256_mul_ps(y, r), _mm256_set1_ps(4.1665795894e-2f));
  y = _mm256_add_ps(_mm256_mul_ps(y, r), _mm256_set1_ps(1.6666665459e-1f));
  y = _mm256_add_ps(_mm256_mul_ps(y, r), _mm256_set1_ps(5.0000001201e-1f));
  y = _mm256_add_ps(_mm256_mul_ps(y, _mm256_mul_ps(r, r)), r);
  y = _mm256_add_ps(y, _mm256_set1_ps(1.f));
  const __m256i first = _mm256_srai_epi32(n, 1), second = _mm256_sub_epi32(n, first), bias = _mm256_set1_epi32(127);
  y = _mm256_mul_ps(y, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(first, bias), 23)));
  return _mm256_mul_ps(y, _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(second, bias), 23)));
}

static inline float exp1(float x) { return _mm256_cvtss_f32(exp8(_mm256_set1_ps(x))); }

// c[6][16] += a[6][depth] b[depth][16], terms in ascending depth, fused.
static inline void multiply_tile(const float* a, int64_t a_stride, const float* b, int64_t depth, float* c,
                                 int64_t c_stride) {
  __m256 sum[kRows][2];
  for (int i = 0; i < kRows; ++i) {
    sum[i][0] = _mm256_loadu_ps(c + i * c_stride);
    sum[i][1] = _mm256_loadu_ps(c + i * c_stride + 8);
  }
  for (int64_t k = 0; k < depth; ++k) {
    const __m256 b0 = _mm256_loadu_ps(b + k * kPanel), b1 = _mm256_loadu_ps(b + k * kPanel + 8);
    for (int i = 0; i < kRows; ++i) {
      const __m256 factor = _mm256_broadcast_ss(a + i * a_stride + k);
      sum[i][0] = _mm256_fmadd_ps(factor, b0, sum[i][0]);
      sum[i][1] = _mm256_fmadd_ps(factor, b1, sum[i][1]);
    }
  }
  for (int i = 0; i < kRows; ++i) {
    _mm256_storeu_ps(c + i * c_stride, sum[i][0]);
    _mm256_storeu_ps(c + i * c_stride + 8, sum[i][1]);
  }
}

// weights[24][keys rounded up to 16] = q . k, unscaled.
static void score_block(const VisionTile& t, int64_t begin, int64_t padded_keys) {
  for (int64_t j = 0; j < padded_keys; j += kPanel)
    for (int row = 0; row < kTile; row += kRows) {
      float* c = t.weights + row * kKeyBlock + j;
      for (int i = 0; i < kRows; ++i) {
        _mm256_storeu_ps(c + i * kKeyBlock, _mm256_setzero_ps());
        _mm256_storeu_ps(c + i * kKeyBlock + 8, _mm256_setzero_ps());
      }
      multiply_tile(t.q + row * t.head_dim, t.head_dim, t.k_panels + (begin + j) * t.head_dim, t.head_dim, c,
                    kKeyBlock);
    }
}

static inline float fold_max(__m256 x) {
  alignas(32) float v[8];
  _mm256_store_ps(v, x);
  float m = v[0];
  for (int i = 1; i < 8; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

// Lanes 16 -> 8 -> 4 -> 2 -> 1.
static inline float fold_sum(__m256 low, __m256 high) {
  const __m256 eight = _mm256_add_ps(low, high);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}

// Scores of one query to weights; returns what the accumulated output must be multiplied by.
static float weigh_row(float* scores, int64_t num_keys, int64_t padded_keys, float scale, float* max, float* sum) {
  const float lowest = -__builtin_inff();
  const __m256 factor = _mm256_set1_ps(scale);
  __m256 largest = _mm256_set1_ps(*max);
  for (int64_t j = 0; j < padded_keys; j += 8)
    _mm256_storeu_ps(scores + j, _mm256_mul_ps(_mm256_loadu_ps(scores + j), factor));
  for (int64_t j = num_keys; j < padded_keys; ++j) scores[j] = lowest;
  for (int64_t j = 0; j < padded_keys; j += 8) largest = _mm256_max_ps(_mm256_loadu_ps(scores + j), largest);
  const float new_max = fold_max(largest), rescale = exp1(*max - new_max);
  const __m256 shift = _mm256_set1_ps(new_max);
  __m256 low = _mm256_setzero_ps(), high = _mm256_setzero_ps();
  for (int64_t j = 0; j < padded_keys; j += kPanel) {
    const __m256 w0 = exp8(_mm256_sub_ps(_mm256_loadu_ps(scores + j), shift));
    const __m256 w1 = exp8(_mm256_sub_ps(_mm256_loadu_ps(scores + j + 8), shift));
    low = _mm256_add_ps(low, w0);
    high = _mm256_add_ps(high, w1);
    _mm256_storeu_ps(scores + j, w0);
    _mm256_storeu_ps(scores + j + 8, w1);
  }
  *sum = *sum * rescale + fold_sum(low, high);
  *max = new_max;
  return rescale;
}

static void rescale_row(float* out, int64_t size, float factor) {
  const __m256 f = _mm256_set1_ps(factor);
  for (int64_t d = 0; d < size; d += 8) _mm256_storeu_ps(out + d, _mm256_mul_ps(_mm256_loadu_ps(out + d), f));
}

static void divide_row(float* out, int64_t size, float divisor) {
  const __m256 f = _mm256_set1_ps(divisor);
  for (int64_t d = 0; d < size; d += 8) _mm256_storeu_ps(out + d, _mm256_div_ps(_mm256_loadu_ps(out + d), f));
}

static int64_t round_up16(int64_t n) { return (n + 15) / 16 * 16; }

}  // namespace

namespace deepinfer {

void vision_tile_avx2(const VisionTile* tile) {
  const VisionTile& t = *tile;
  const int64_t width = round_up16(t.head_dim);
  float max[kTile], sum[kTile];
  for (int i = 0; i < kTile; ++i) {
    max[i] = -__builtin_inff();
    sum[i] = 0;
  }
  for (int64_t i = 0; i < kTile * width; i += 8) _mm256_storeu_ps(t.out + i, _mm256_setzero_ps());
  for (int64_t begin = 0; begin < t.num_keys; begin += kKeyBlock) {
    const int64_t keys = t.num_keys - begin < kKeyBlock ? t.num_keys - begin : kKeyBlock, padded = round_up16(keys);
    score_block(t, begin, padded);
    for (int i = 0; i < kTile; ++i)
      rescale_row(t.out + i * width, width,
                  weigh_row(t.weights + i * kKeyBlock, keys, padded, t.scale, &max[i], &sum[i]));
    for (int64_t d = 0; d < width; d += kPanel)
      for (int row = 0; row < kTile; row += kRows)
        multiply_tile(t.weights + row * kKeyBlock, kKeyBlock, t.v_panels + (d / kPanel * t.num_keys + begin) * kPanel,
                      keys, t.out + row * width + d, width);
  }
  for (int i = 0; i < kTile; ++i) divide_row(t.out + i * width, width, sum[i]);
}

}  // namespace deepinfer
