// SPDX-License-Identifier: MIT
// Sixteen fp32 lanes in two 256-bit registers, for kernel files compiled with AVX2, FMA and F16C. Same functions and
// same bits as lanes_avx512.h. Everything has internal linkage: such code must never be shared with other files.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace deepinfer {
namespace {

struct V16 {
  __m256 lo, hi;
};
struct V16Pair {
  V16 first, second;
};
constexpr int kFewX = 4;  // a few activation rows: so many share an unpacked weight
constexpr int few_rows(int x) { return x == 1 ? 4 : x == 2 ? 2 : 1; }  // weight rows walked with them: few sums fit
constexpr int kFewValues = 6144, kFewOut = 32;  // activations that stay in the first cache; outputs that pass them
constexpr int kPanelX = 2, kPanelW = 2;         // register tile of the panel product: eight accumulators
constexpr int kSumsX = 2, kSumsW = 2;           // the same of linears
constexpr int kAccumulateHeads = 2;             // heads of the probability-value tile, by two V16
constexpr int kIndexHeads = 1;                  // heads by four keys of the index scores

inline V16 zero16() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline V16 set16(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline V16 load16(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline void store16(float* p, V16 a) {
  _mm256_storeu_ps(p, a.lo);
  _mm256_storeu_ps(p + 8, a.hi);
}
inline V16 load_some(const float* p, int64_t n) {
  float all[16] = {};
  for (int64_t i = 0; i < n; ++i) all[i] = p[i];
  return load16(all);
}
inline void store_some(float* p, int64_t n, V16 a) {
  float all[16];
  store16(all, a);
  for (int64_t i = 0; i < n; ++i) p[i] = all[i];
}

inline V16 add(V16 a, V16 b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
inline V16 sub(V16 a, V16 b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
inline V16 mul(V16 a, V16 b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
inline V16 div(V16 a, V16 b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
// The order in which linears keep sixteen values (lanes_avx512.h): here that of their columns.
inline V16 weave(V16 a) { return a; }
inline V16 unweave(V16 a) { return a; }
// (1, 0, 3, 2, ...)
inline V16 swap_pairs(V16 a) { return {_mm256_permute_ps(a.lo, 0xB1), _mm256_permute_ps(a.hi, 0xB1)}; }
// Element or quarter I of each quarter, or of the whole, everywhere.
template <int kI>
V16 spread_element(V16 a) {
  return {_mm256_permute_ps(a.lo, kI * 0x55), _mm256_permute_ps(a.hi, kI * 0x55)};
}
template <int kI>
V16 spread_quarter(V16 a) {
  const __m256 half = kI < 2 ? a.lo : a.hi, both = _mm256_permute2f128_ps(half, half, kI % 2 * 0x11);
  return {both, both};
}
// acc + a * b in one rounding: only where the product is exact, else the bits differ from the reference.
inline V16 add_exact_product(V16 acc, V16 a, V16 b) {
  return {_mm256_fmadd_ps(a.lo, b.lo, acc.lo), _mm256_fmadd_ps(a.hi, b.hi, acc.hi)};
}
// The second operand where either is NaN.
inline V16 max(V16 a, V16 b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
inline V16 min(V16 a, V16 b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
inline V16 magnitude(V16 a) {
  const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7FFFFFFF));
  return {_mm256_and_ps(a.lo, mask), _mm256_and_ps(a.hi, mask)};
}

inline __m256 widen_bf16_half(__m128i x) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(x), 16));
}
inline V16 widen_bf16(__m256i x) {
  return {widen_bf16_half(_mm256_castsi256_si128(x)), widen_bf16_half(_mm256_extracti128_si256(x, 1))};
}
inline V16 load_bf16(const uint16_t* p) { return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
inline V16Pair load_woven_bf16(const uint16_t* p) { return {load_bf16(p), load_bf16(p + 16)}; }
inline V16 load_some_bf16(const uint16_t* p, int64_t n) {
  uint16_t all[16] = {};
  for (int64_t i = 0; i < n; ++i) all[i] = p[i];
  return load_bf16(all);
}
inline __m256i narrow_bf16_half(__m256 a) {  // in the low 16 bits of each 32
  const __m256i u = _mm256_castps_si256(a), top = _mm256_srli_epi32(u, 16);
  const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
  const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7FFF)), odd), 16);
  const __m256i quiet = _mm256_or_si256(top, _mm256_set1_epi32(0x40)),
                nan = _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q));
  return _mm256_blendv_epi8(rounded, quiet, nan);
}
inline __m256i narrow_bf16(V16 a) {
  return _mm256_permute4x64_epi64(_mm256_packus_epi32(narrow_bf16_half(a.lo), narrow_bf16_half(a.hi)), 0xD8);
}
inline void store_bf16(uint16_t* p, V16 a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(a)); }
inline void store_some_bf16(uint16_t* p, int64_t n, V16 a) {
  uint16_t all[16];
  store_bf16(all, a);
  for (int64_t i = 0; i < n; ++i) p[i] = all[i];
}
inline V16 round_bf16(V16 a) { return widen_bf16(narrow_bf16(a)); }

// 16 e4m3 codes as values * 2^-8: moved into the fields of fp16, whose exponent bias is larger by 8. NaN codes become
// 480.
inline V16 widen_e4m3(__m128i codes) {
  const __m256i half = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(codes), 7),
                                        _mm256_set1_epi16(static_cast<int16_t>(0xBF80)));
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(half)), _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
}
inline V16Pair load_e4m3(const uint8_t* p) {
  return {widen_e4m3(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          widen_e4m3(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16)))};
}
inline V16Pair load_e4m3_by_memory(const uint8_t* p) { return load_e4m3(p); }
inline V16Pair load_some_e4m3(const uint8_t* p, int64_t n) {
  uint8_t all[32] = {};
  for (int64_t i = 0; i < n; ++i) all[i] = p[i];
  return load_e4m3(all);
}

inline __m256 round_e4m3_half(__m256 a) {
  const __m256i u = _mm256_castps_si256(a), m = _mm256_and_si256(u, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(m, 20), _mm256_set1_epi32(1));
  __m256i r = _mm256_and_si256(_mm256_add_epi32(_mm256_add_epi32(m, _mm256_set1_epi32(0x7FFFF)), odd),
                               _mm256_set1_epi32(-0x100000));
  r = _mm256_min_epi32(r, _mm256_set1_epi32(0x43E00000));
  const __m256 step = _mm256_set1_ps(0x1p14f);  // below 2^-6 the steps are 2^-9: adding 2^14 drops the rest
  const __m256 small = _mm256_sub_ps(_mm256_add_ps(_mm256_castsi256_ps(m), step), step);
  const __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3C800000), m);
  r = _mm256_blendv_epi8(r, _mm256_castps_si256(small), is_small);
  return _mm256_castsi256_ps(_mm256_or_si256(r, _mm256_andnot_si256(_mm256_set1_epi32(0x7FFFFFFF), u)));
}
// To the nearest e4m3 value, ties to even, saturating at 448 (a value, not a code).
inline V16 round_e4m3(V16 a) { return {round_e4m3_half(a.lo), round_e4m3_half(a.hi)}; }

// The low bytes of 16 words.
inline __m128i low_bytes(__m256i lo, __m256i hi) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packus_epi32(lo, hi), 0xD8);
  return _mm_packus_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
}
inline __m256i e4m3_codes_half(__m256 rounded) {
  const __m256i u = _mm256_castps_si256(rounded), m = _mm256_and_si256(u, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i normal = _mm256_sub_epi32(_mm256_srli_epi32(m, 20), _mm256_set1_epi32(960));
  const __m256i small = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_castsi256_ps(m), _mm256_set1_ps(512.f)));
  const __m256i code = _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(0x3C800000), m));
  return _mm256_or_si256(code, _mm256_and_si256(_mm256_srli_epi32(u, 24), _mm256_set1_epi32(0x80)));
}
// Codes of values that are e4m3 values already.
inline __m128i e4m3_codes(V16 rounded) { return low_bytes(e4m3_codes_half(rounded.lo), e4m3_codes_half(rounded.hi)); }

inline __m256i e2m1_codes_half(__m256 a) {
  const __m256 m = _mm256_andnot_ps(_mm256_set1_ps(-0.f), a);
  __m256i code = _mm256_and_si256(_mm256_srli_epi32(_mm256_castps_si256(a), 28), _mm256_set1_epi32(8));
  code = _mm256_sub_epi32(code, _mm256_castps_si256(_mm256_cmp_ps(m, _mm256_set1_ps(0.25f), _CMP_GT_OQ)));
  code = _mm256_sub_epi32(code, _mm256_castps_si256(_mm256_cmp_ps(m, _mm256_set1_ps(0.75f), _CMP_GE_OQ)));
  code = _mm256_sub_epi32(code, _mm256_castps_si256(_mm256_cmp_ps(m, _mm256_set1_ps(1.25f), _CMP_GT_OQ)));
  code = _mm256_sub_epi32(code, _mm256_castps_si256(_mm256_cmp_ps(m, _mm256_set1_ps(1.75f), _CMP_GE_OQ)));
  code = _mm256_sub_epi32(code, _mm256_castps_si256(_mm256_cmp_ps(m, _mm256_set1_ps(2.5f), _CMP_GT_OQ)));
  code = _mm256_sub_epi32(code, _mm256_castps_si256(_mm256_cmp_ps(m, _mm256_set1_ps(3.5f), _CMP_GE_OQ)));
  return _mm256_sub_epi32(code, _mm256_castps_si256(_mm256_cmp_ps(m, _mm256_set1_ps(5.0f), _CMP_GT_OQ)));
}
// Nearest e2m1 codes, ties to the even code, one a byte.
inline __m128i e2m1_codes(V16 a) { return low_bytes(e2m1_codes_half(a.lo), e2m1_codes_half(a.hi)); }

// 16 codes, one a byte, as bf16 bit patterns: the high and the low byte from two tables.
inline V16 widen_e2m1(__m128i codes, __m256 scale) {
  const __m128i high =
      _mm_setr_epi8(0, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40, static_cast<char>(0x80), static_cast<char>(0xBF),
                    static_cast<char>(0xBF), static_cast<char>(0xBF), static_cast<char>(0xC0), static_cast<char>(0xC0),
                    static_cast<char>(0xC0), static_cast<char>(0xC0));
  const __m128i low = _mm_setr_epi8(0, 0, static_cast<char>(0x80), static_cast<char>(0xC0), 0, 0x40,
                                    static_cast<char>(0x80), static_cast<char>(0xC0), 0, 0, static_cast<char>(0x80),
                                    static_cast<char>(0xC0), 0, 0x40, static_cast<char>(0x80), static_cast<char>(0xC0));
  const __m128i h = _mm_shuffle_epi8(high, codes), l = _mm_shuffle_epi8(low, codes);
  return {_mm256_mul_ps(widen_bf16_half(_mm_unpacklo_epi8(l, h)), scale),
          _mm256_mul_ps(widen_bf16_half(_mm_unpackhi_epi8(l, h)), scale)};
}
// 32 e2m1 codes (16 bytes, even column in the low nibble), times scale.
inline V16Pair load_e2m1(const uint8_t* p, float scale) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), mask = _mm_set1_epi8(15);
  const __m128i even = _mm_and_si128(bytes, mask), odd = _mm_and_si128(_mm_srli_epi16(bytes, 4), mask);
  const __m256 s = _mm256_set1_ps(scale);
  return {widen_e2m1(_mm_unpacklo_epi8(even, odd), s), widen_e2m1(_mm_unpackhi_epi8(even, odd), s)};
}
// The same with a scale of e8m0.
inline V16Pair load_scaled_e2m1(const uint8_t* p, uint8_t scale) {
  const uint32_t bits = scale == 0 ? 0x00400000u : static_cast<uint32_t>(scale) << 23;
  float value;
  __builtin_memcpy(&value, &bits, 4);
  return load_e2m1(p, value);
}

inline float fold(V16 a) {
  const __m256 eight = _mm256_add_ps(a.lo, a.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
// The folds of four sums, each in the order of fold().
inline __m256 fold_pair(V16 a, V16 b) {
  const __m256 x = _mm256_add_ps(a.lo, a.hi), y = _mm256_add_ps(b.lo, b.hi);
  return _mm256_add_ps(_mm256_permute2f128_ps(x, y, 0x20), _mm256_permute2f128_ps(x, y, 0x31));  // a, b, four each
}
inline __m128 fold4(V16 a, V16 b, V16 c, V16 d) {
  const __m256d ab = _mm256_castps_pd(fold_pair(a, b)), cd = _mm256_castps_pd(fold_pair(c, d));
  const __m256 two = _mm256_add_ps(_mm256_castpd_ps(_mm256_unpacklo_pd(ab, cd)),
                                   _mm256_castpd_ps(_mm256_unpackhi_pd(ab, cd)));  // a a c c | b b d d
  const __m256 one = _mm256_hadd_ps(two, two);                                     // a c a c | b d b d
  return _mm_unpacklo_ps(_mm256_castps256_ps128(one), _mm256_extractf128_ps(one, 1));
}
inline float first_lane(V16 a) { return _mm256_cvtss_f32(a.lo); }
inline float largest(V16 a) {
  const __m256 eight = _mm256_max_ps(a.lo, a.hi);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

inline __m256 power_of_two(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
inline __m256 scale_by_powers(__m256 y, __m256i n) {
  const __m256i first = _mm256_srai_epi32(n, 1);
  return _mm256_mul_ps(_mm256_mul_ps(y, power_of_two(first)), power_of_two(_mm256_sub_epi32(n, first)));
}
// kernels/lanes/exponential.h, operation by operation.
inline V16 exp16(V16 x) {
  const __m256 least = _mm256_set1_ps(-104.f);  // there and below it is zero, and cheaper if nothing has to underflow
  const __m256 lo_counts = _mm256_cmp_ps(x.lo, least, _CMP_NLE_UQ), hi_counts = _mm256_cmp_ps(x.hi, least, _CMP_NLE_UQ);
  x = min(set16(89.f), max(set16(-104.f), x));
  const V16 magic = set16(12582912.f), shifted = add(mul(x, set16(1.44269504f)), magic);
  const V16 rounded = sub(shifted, magic);
  V16 r = sub(x, mul(rounded, set16(0.693359375f)));
  r = sub(r, mul(rounded, set16(-2.12194440e-4f)));
  V16 y = set16(1.9875691500e-4f);
  y = add(mul(y, r), set16(1.3981999507e-3f));
  y = add(mul(y, r), set16(8.3334519073e-3f));
  y = add(mul(y, r), set16(4.1665795894e-2f));
  y = add(mul(y, r), set16(1.6666665459e-1f));
  y = add(mul(y, r), set16(5.0000001201e-1f));
  y = add(add(mul(y, mul(r, r)), r), set16(1.f));
  y = {_mm256_and_ps(y.lo, lo_counts), _mm256_and_ps(y.hi, hi_counts)};
  const __m256i bits = _mm256_castps_si256(magic.lo);
  return {scale_by_powers(y.lo, _mm256_sub_epi32(_mm256_castps_si256(shifted.lo), bits)),
          scale_by_powers(y.hi, _mm256_sub_epi32(_mm256_castps_si256(shifted.hi), bits))};
}

}  // namespace
}  // namespace deepinfer
