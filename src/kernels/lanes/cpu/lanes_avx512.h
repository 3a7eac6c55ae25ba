// SPDX-License-Identifier: MIT
// Sixteen fp32 lanes in one 512-bit register, for kernel files compiled with AVX-512. lanes_avx2.h offers the same
// functions, so one kernel body serves both. Everything has internal linkage: such code must never be shared with other
// files.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace deepinfer {
namespace {

struct V16 {
  __m512 v;
};
struct V16Pair {
  V16 first, second;
};
constexpr int kFewX = 8;                                  // a few activation rows: so many share an unpacked weight
constexpr int few_rows(int x) { return x <= 6 ? 4 : 2; }  // weight rows walked with them: at most 24 sums
constexpr int kFewValues = 6144, kFewOut = 32;  // activations that stay in the first cache; outputs that pass them
constexpr int kPanelX = 6, kPanelW = 4;  // register tile of panel products: 24 accumulators, ten loads for 24 products
constexpr int kSumsX = 6, kSumsW = 4;    // the same of linears
constexpr int kAccumulateHeads = 8;      // heads of the probability-value tile, by two V16
constexpr int kIndexHeads = 4;           // heads by four keys of the index scores

inline V16 zero16() { return {_mm512_setzero_ps()}; }
inline V16 set16(float x) { return {_mm512_set1_ps(x)}; }
inline V16 load16(const float* p) { return {_mm512_loadu_ps(p)}; }
inline void store16(float* p, V16 a) { _mm512_storeu_ps(p, a.v); }
inline __mmask16 first_lanes(int64_t n) { return static_cast<__mmask16>((1u << n) - 1); }
inline V16 load_some(const float* p, int64_t n) { return {_mm512_maskz_loadu_ps(first_lanes(n), p)}; }
inline void store_some(float* p, int64_t n, V16 a) { _mm512_mask_storeu_ps(p, first_lanes(n), a.v); }

inline V16 add(V16 a, V16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline V16 sub(V16 a, V16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline V16 mul(V16 a, V16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline V16 div(V16 a, V16 b) { return {_mm512_div_ps(a.v, b.v)}; }
// Woven: (0, 8, 1, 9, ..., 7, 15), the order in which the codes of sixteen e2m1 values come out of one broadcast and
// one shift. Linears keep their activations and their unpacked weights so, and their sums until they are folded.
inline V16 weave(V16 a) {
  return {_mm512_permutexvar_ps(_mm512_setr_epi32(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15), a.v)};
}
inline V16 unweave(V16 a) {
  return {_mm512_permutexvar_ps(_mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 1, 3, 5, 7, 9, 11, 13, 15), a.v)};
}
// (1, 0, 3, 2, ...)
inline V16 swap_pairs(V16 a) { return {_mm512_permute_ps(a.v, 0xB1)}; }
// Element or quarter I of each quarter, or of the whole, everywhere.
template <int kI>
V16 spread_element(V16 a) {
  return {_mm512_permute_ps(a.v, kI * 0x55)};
}
template <int kI>
V16 spread_quarter(V16 a) {
  return {_mm512_shuffle_f32x4(a.v, a.v, kI * 0x55)};
}
// acc + a * b in one rounding: only where the product is exact, else the bits differ from the reference.
inline V16 add_exact_product(V16 acc, V16 a, V16 b) { return {_mm512_fmadd_ps(a.v, b.v, acc.v)}; }
// The second operand where either is NaN.
inline V16 max(V16 a, V16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline V16 min(V16 a, V16 b) { return {_mm512_min_ps(a.v, b.v)}; }
inline V16 magnitude(V16 a) { return {_mm512_abs_ps(a.v)}; }

inline V16 widen_bf16(__m256i x) { return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(x), 16))}; }
inline V16 load_bf16(const uint16_t* p) { return widen_bf16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
inline V16 load_some_bf16(const uint16_t* p, int64_t n) {
  return widen_bf16(_mm256_maskz_loadu_epi16(first_lanes(n), p));
}
// 32 values, woven: one shuffle puts sixteen of them into the upper halves.
inline V16Pair load_woven_bf16(const uint16_t* p) {
  alignas(64) static constexpr uint16_t kOrder[32] = {0, 0, 0, 8,  0, 1, 0, 9,  0, 2, 0, 10, 0, 3, 0, 11,
                                                      0, 4, 0, 12, 0, 5, 0, 13, 0, 6, 0, 14, 0, 7, 0, 15};
  const __m512i values = _mm512_loadu_si512(p), order = _mm512_load_si512(kOrder),
                last = _mm512_add_epi16(order, _mm512_set1_epi16(16));
  return {{_mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xAAAAAAAAu, order, values))},
          {_mm512_castsi512_ps(_mm512_maskz_permutexvar_epi16(0xAAAAAAAAu, last, values))}};
}
inline __m256i narrow_bf16(V16 a) {
  const __m512i u = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF)), odd), 16);
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  rounded = _mm512_mask_or_epi32(rounded, nan, _mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
  return _mm512_cvtepi32_epi16(rounded);
}
inline void store_bf16(uint16_t* p, V16 a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow_bf16(a)); }
inline void store_some_bf16(uint16_t* p, int64_t n, V16 a) {
  _mm256_mask_storeu_epi16(p, first_lanes(n), narrow_bf16(a));
}
inline V16 round_bf16(V16 a) {
  const __m512i u = _mm512_castps_si512(a.v);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i rounded = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF)), odd);
  const __mmask16 nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
  return {_mm512_castsi512_ps(_mm512_and_si512(_mm512_mask_or_epi32(rounded, nan, u, _mm512_set1_epi32(0x400000)),
                                               _mm512_set1_epi32(-0x10000)))};
}

// 32 e4m3 codes as values * 2^-8: moved into the fields of fp16, whose exponent bias is larger by 8. NaN codes become
// 480.
inline V16Pair widen_e4m3(__m256i codes) {
  const __m512i half = _mm512_and_si512(_mm512_slli_epi16(_mm512_cvtepi8_epi16(codes), 7),
                                        _mm512_set1_epi16(static_cast<int16_t>(0xBF80)));
  return {{_mm512_cvtph_ps(_mm512_castsi512_si256(half))}, {_mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1))}};
}
// The same by way of memory: a conversion widens what it loads, where from a register it takes the one port that
// shuffles.
inline V16Pair load_e4m3_by_memory(const uint8_t* p) {
  const __m512i half = _mm512_and_si512(
      _mm512_slli_epi16(_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 7),
      _mm512_set1_epi16(static_cast<int16_t>(0xBF80)));
  alignas(64) __m256i halves[2];
  _mm512_store_si512(halves, half);
  asm volatile("" : "+m"(halves));  // else the compiler takes the halves from the register after all
  return {{_mm512_cvtph_ps(halves[0])}, {_mm512_cvtph_ps(halves[1])}};
}
inline V16Pair load_e4m3(const uint8_t* p) {
  return widen_e4m3(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
inline V16Pair load_some_e4m3(const uint8_t* p, int64_t n) {
  return widen_e4m3(_mm256_maskz_loadu_epi8(static_cast<__mmask32>((uint64_t{1} << n) - 1), p));
}

// To the nearest e4m3 value, ties to even, saturating at 448 (a value, not a code).
inline V16 round_e4m3(V16 a) {
  const __m512i u = _mm512_castps_si512(a.v), m = _mm512_and_si512(u, _mm512_set1_epi32(0x7FFFFFFF));
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(m, 20), _mm512_set1_epi32(1));
  __m512i r = _mm512_and_si512(_mm512_add_epi32(_mm512_add_epi32(m, _mm512_set1_epi32(0x7FFFF)), odd),
                               _mm512_set1_epi32(-0x100000));
  r = _mm512_min_epi32(r, _mm512_set1_epi32(0x43E00000));
  const __m512 step = _mm512_set1_ps(0x1p14f);  // below 2^-6 the steps are 2^-9: adding 2^14 drops the rest
  const __m512 small = _mm512_sub_ps(_mm512_add_ps(_mm512_castsi512_ps(m), step), step);
  const __mmask16 is_small = _mm512_cmplt_epi32_mask(m, _mm512_set1_epi32(0x3C800000));
  r = _mm512_mask_mov_epi32(r, is_small, _mm512_castps_si512(small));
  return {_mm512_castsi512_ps(_mm512_or_si512(r, _mm512_andnot_si512(_mm512_set1_epi32(0x7FFFFFFF), u)))};
}

// Codes of values that are e4m3 values already.
inline __m128i e4m3_codes(V16 rounded) {
  const __m512i u = _mm512_castps_si512(rounded.v), m = _mm512_and_si512(u, _mm512_set1_epi32(0x7FFFFFFF));
  const __m512i normal = _mm512_sub_epi32(_mm512_srli_epi32(m, 20), _mm512_set1_epi32(960));
  const __m512i small = _mm512_cvtps_epi32(_mm512_mul_ps(_mm512_castsi512_ps(m), _mm512_set1_ps(512.f)));
  const __m512i code = _mm512_mask_mov_epi32(normal, _mm512_cmplt_epi32_mask(m, _mm512_set1_epi32(0x3C800000)), small);
  return _mm512_cvtepi32_epi8(
      _mm512_or_si512(code, _mm512_and_si512(_mm512_srli_epi32(u, 24), _mm512_set1_epi32(0x80))));
}
// Nearest e2m1 codes, ties to the even code, one a byte.
inline __m128i e2m1_codes(V16 a) {
  const __m512i u = _mm512_castps_si512(a.v), one = _mm512_set1_epi32(1);
  const __m512 m = _mm512_abs_ps(a.v);
  __m512i code = _mm512_and_si512(_mm512_srli_epi32(u, 28), _mm512_set1_epi32(8));
  code = _mm512_mask_add_epi32(code, _mm512_cmp_ps_mask(m, _mm512_set1_ps(0.25f), _CMP_GT_OQ), code, one);
  code = _mm512_mask_add_epi32(code, _mm512_cmp_ps_mask(m, _mm512_set1_ps(0.75f), _CMP_GE_OQ), code, one);
  code = _mm512_mask_add_epi32(code, _mm512_cmp_ps_mask(m, _mm512_set1_ps(1.25f), _CMP_GT_OQ), code, one);
  code = _mm512_mask_add_epi32(code, _mm512_cmp_ps_mask(m, _mm512_set1_ps(1.75f), _CMP_GE_OQ), code, one);
  code = _mm512_mask_add_epi32(code, _mm512_cmp_ps_mask(m, _mm512_set1_ps(2.5f), _CMP_GT_OQ), code, one);
  code = _mm512_mask_add_epi32(code, _mm512_cmp_ps_mask(m, _mm512_set1_ps(3.5f), _CMP_GE_OQ), code, one);
  code = _mm512_mask_add_epi32(code, _mm512_cmp_ps_mask(m, _mm512_set1_ps(5.0f), _CMP_GT_OQ), code, one);
  return _mm512_cvtepi32_epi8(code);
}

// 32 e2m1 codes (16 bytes, even column in the low nibble) through a table of the sixteen values, times scale.
inline V16Pair load_e2m1(const uint8_t* p, float scale) {
  const __m512 table = _mm512_mul_ps(
      _mm512_setr_ps(0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f, -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f),
      _mm512_set1_ps(scale));
  const __m512i shifts = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
  const __m512i low = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1),
                high = _mm512_add_epi32(low, _mm512_set1_epi32(2));
  const __m512i words = _mm512_castsi128_si512(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return {{_mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_permutexvar_epi32(low, words), shifts), table)},
          {_mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_permutexvar_epi32(high, words), shifts), table)}};
}

// The sixteen values of e2m1 times 2^(scale - 127), as bits, for every scale.
struct E2m1Floats {
  alignas(64) uint32_t bits[256][16];
};
constexpr E2m1Floats make_e2m1_floats() {
  constexpr int kExponent[8] = {0, -1, 0, 0, 1, 1, 2, 2}, kHalf[8] = {0, 0, 0, 1, 0, 1, 0, 1};
  E2m1Floats floats{};
  for (int scale = 0; scale < 256; ++scale)
    for (int code = 1; code < 8; ++code) {
      const int exponent = (scale == 0 ? 0 : scale) + kExponent[code];
      const uint32_t mantissa = 1u << 23 | static_cast<uint32_t>(kHalf[code]) << 22;
      uint32_t bits = static_cast<uint32_t>(exponent) << 23 | (mantissa & 0x7FFFFF);
      if (exponent >= 255) bits = 0x7F800000;
      if (exponent < 1) bits = mantissa >> (1 - exponent);
      floats.bits[scale][code] = bits;
      floats.bits[scale][code + 8] = 0x80000000u | bits;
    }
  for (auto& row : floats.bits) row[8] = 0x80000000u;
  return floats;
}
alignas(64) constexpr E2m1Floats kE2m1Floats = make_e2m1_floats();

// load_e2m1 with a scale of e8m0, woven: the table comes from memory with the scale in it, and eight bytes stand in
// every pair of lanes, the first eight codes in the even ones, so that one shift and one shuffle are left for sixteen
// values.
inline V16Pair load_scaled_e2m1(const uint8_t* p, uint8_t scale) {
  const __m512i shifts = _mm512_setr_epi32(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
  const __m512 table = _mm512_castsi512_ps(_mm512_load_si512(kE2m1Floats.bits[scale]));
  const auto sixteen = [&](const uint8_t* codes) {
    int64_t bytes;
    __builtin_memcpy(&bytes, codes, 8);
    return _mm512_srlv_epi32(_mm512_set1_epi64(bytes), shifts);
  };
  return {{_mm512_permutexvar_ps(sixteen(p), table)}, {_mm512_permutexvar_ps(sixteen(p + 8), table)}};
}

inline float fold(V16 a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
// The folds of four sums, each in the order of fold(). Half of what must change places does so by a blend: only one
// port of some machines shuffles.
inline __m128 fold4(V16 a, V16 b, V16 c, V16 d) {
  const __m512i quarters = _mm512_setr_epi32(4, 5, 6, 7, 16, 17, 18, 19, 12, 13, 14, 15, 24, 25, 26, 27);
  const __m512 ab =
      _mm512_add_ps(_mm512_mask_blend_ps(0xFF00, a.v, b.v), _mm512_shuffle_f32x4(a.v, b.v, 0x4E));  // a0-7 b0-7
  const __m512 cd = _mm512_add_ps(_mm512_mask_blend_ps(0xFF00, c.v, d.v), _mm512_shuffle_f32x4(c.v, d.v, 0x4E));
  __m512 all = _mm512_add_ps(_mm512_mask_blend_ps(0xF0F0, ab, cd),
                             _mm512_permutex2var_ps(ab, quarters, cd));  // a c b d, four each
  all = _mm512_add_ps(all, _mm512_permute_ps(all, 0x4E));
  all = _mm512_add_ps(all, _mm512_permute_ps(all, 0xB1));
  return _mm512_castps512_ps128(_mm512_permutexvar_ps(_mm512_castsi128_si512(_mm_setr_epi32(0, 8, 4, 12)), all));
}
inline float first_lane(V16 a) { return _mm512_cvtss_f32(a.v); }
inline float largest(V16 a) { return _mm512_reduce_max_ps(a.v); }

// kernels/lanes/exponential.h, operation by operation, but for the last: one scaling rounds as its two steps do, of
// which the first is exact. At -104 and below that is zero, and left out: scores of missing entries stand there, and
// results below the normal numbers cost some machines a hundred cycles.
inline V16 exp16(V16 x) {
  const __mmask16 counts = _mm512_cmp_ps_mask(x.v, _mm512_set1_ps(-104.f), _CMP_NLE_UQ);
  x = min(set16(89.f), max(set16(-104.f), x));
  const V16 magic = set16(12582912.f), rounded = sub(add(mul(x, set16(1.44269504f)), magic), magic);
  V16 r = sub(x, mul(rounded, set16(0.693359375f)));
  r = sub(r, mul(rounded, set16(-2.12194440e-4f)));
  V16 y = set16(1.9875691500e-4f);
  y = add(mul(y, r), set16(1.3981999507e-3f));
  y = add(mul(y, r), set16(8.3334519073e-3f));
  y = add(mul(y, r), set16(4.1665795894e-2f));
  y = add(mul(y, r), set16(1.6666665459e-1f));
  y = add(mul(y, r), set16(5.0000001201e-1f));
  y = add(add(mul(y, mul(r, r)), r), set16(1.f));
  return {_mm512_maskz_scalef_ps(counts, y.v, rounded.v)};
}

}  // namespace
}  // namespace deepinfer
