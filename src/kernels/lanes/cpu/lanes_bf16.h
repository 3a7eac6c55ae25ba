// SPDX-License-Identifier: MIT
// Sums of bf16 products in the order of lanes.h, two terms an instruction, for kernel files compiled with AVX512-BF16.
//
// The dot-product instruction adds to each fp32 element the product of the upper bf16 halves and then the product of
// the lower ones, rounding to nearest even after each (cpu_features.cc checks that this machine does). So with term k
// in the upper and term k + 16 in the lower half of element k mod 16 one instruction does what two steps of the sixteen
// lanes do, bit for bit: a block of 32 terms. Two things differ from fp32 arithmetic: denormal factors count as zero,
// and denormal sums become zero. Neither can happen where factors are "plain" (kPlain* below): then every product, and
// so every sum of them, is a multiple of 2^-126.
#pragma once

#include "kernels/lanes/cpu/lanes_avx512.h"

namespace deepinfer {
namespace {

// A block of 32 bf16 terms: terms 0..15 in the upper halves of the sixteen elements, terms 16..31 in the lower.
struct Pairs {
  __m512i v;
};

// Nonzero magnitudes of plain activations lie in [2^-60, 2^61), as the bits of a bf16; those of plain weights in
// [2^-52, 2^41). Scales of packed weights are plain from 2^-40 to 2^40: then the smallest product of e4m3 or e2m1
// codes, 2^-9 or 2^-1, and an activation's last bit is 2^-67 * 2^-9 * 2^-40.
constexpr uint16_t kPlainActivationLow = (127 - 60) << 7, kPlainActivationHigh = (127 + 61) << 7;
constexpr uint16_t kPlainWeightLow = (127 - 52) << 7, kPlainWeightHigh = (127 + 41) << 7;
constexpr uint8_t kPlainScaleLow = 127 - 40, kPlainScaleHigh = 127 + 40;

inline Pairs load_pairs(const uint16_t* p) { return {_mm512_loadu_si512(p)}; }
inline void store_pairs(uint16_t* p, Pairs a) { _mm512_storeu_si512(p, a.v); }
inline V16 add_pair_products(V16 acc, Pairs a, Pairs b) {
  return {_mm512_dpbf16_ps(acc.v, (__m512bh)a.v, (__m512bh)b.v)};
}

// From fp32 values that are bf16 values: the first and the last sixteen terms of a block; and back.
inline Pairs make_pairs(V16 first, V16 last) {
  const __m512i low = _mm512_srli_epi32(_mm512_castps_si512(last.v), 16);
  return {_mm512_mask_blend_epi16(0xAAAAAAAAu, low, _mm512_castps_si512(first.v))};
}
inline V16 first_terms(Pairs a) { return {_mm512_castsi512_ps(_mm512_and_si512(a.v, _mm512_set1_epi32(-0x10000)))}; }
inline V16 last_terms(Pairs a) { return {_mm512_castsi512_ps(_mm512_slli_epi32(a.v, 16))}; }
// From 32 bf16 values in order.
inline Pairs pair_up(__m512i values) {
  alignas(64) static constexpr uint16_t kOrder[32] = {16, 0, 17, 1, 18, 2,  19, 3,  20, 4,  21, 5,  22, 6,  23, 7,
                                                      24, 8, 25, 9, 26, 10, 27, 11, 28, 12, 29, 13, 30, 14, 31, 15};
  return {_mm512_permutexvar_epi16(_mm512_load_si512(kOrder), values)};
}

// Collects the range of nonzero magnitudes.
struct Range16 {
  __m512i least = _mm512_set1_epi16(-1), most = _mm512_setzero_si512();
  void add(Pairs a) {
    const __m512i magnitude = _mm512_and_si512(a.v, _mm512_set1_epi16(0x7FFF));
    most = _mm512_max_epu16(most, magnitude);
    least = _mm512_min_epu16(least, _mm512_sub_epi16(magnitude, _mm512_set1_epi16(1)));  // zero becomes the largest
  }
  bool within(uint16_t low, uint16_t high) const {
    return _mm512_cmplt_epu16_mask(least, _mm512_set1_epi16(static_cast<int16_t>(low - 1))) == 0 &&
           _mm512_cmpge_epu16_mask(most, _mm512_set1_epi16(static_cast<int16_t>(high))) == 0;
  }
};

// a * 2^(scale - 127) for nonzero a, by its exponent; the result must be a normal number.
[[gnu::always_inline]] inline Pairs scale_pairs(Pairs a, uint8_t scale) {
  const __mmask32 nonzero = _mm512_test_epi16_mask(a.v, _mm512_set1_epi16(0x7FFF));
  return {_mm512_mask_add_epi16(a.v, nonzero, a.v, _mm512_set1_epi16(static_cast<int16_t>((scale - 127) << 7)))};
}

// The bf16 forms of the 128 magnitudes of e4m3, in halves: a table of 128 bytes is two registers.
struct E4m3Bytes {
  alignas(64) uint8_t low[128], high[128];
};
constexpr E4m3Bytes make_e4m3_bytes() {
  E4m3Bytes bytes{};
  for (int code = 0; code < 128; ++code) {
    const int exponent = code >> 3, mantissa = code & 7;
    int bits = (exponent + 120) << 7 | mantissa << 4;
    if (exponent == 0) {  // mantissa * 2^-9
      const int top = mantissa >= 4 ? 2 : mantissa >= 2 ? 1 : 0;
      bits = mantissa == 0 ? 0 : (118 + top) << 7 | ((mantissa << (7 - top)) & 0x7F);
    }
    bytes.low[code] = static_cast<uint8_t>(bits & 0xFF);
    bytes.high[code] = static_cast<uint8_t>(bits >> 8);
  }
  return bytes;
}
alignas(64) constexpr E4m3Bytes kE4m3Bytes = make_e4m3_bytes();

// 64 e4m3 codes as two blocks. NaN codes become 480.
struct PairsPair {
  Pairs first, second;
};
[[gnu::always_inline]] inline PairsPair pair_e4m3(__m512i codes) {
  // Each quarter of the register: eight bytes of the first block in pair order, then eight of the second.
  alignas(64) static constexpr uint8_t kOrder[64] = {16, 0,  17, 1,  18, 2,  19, 3,  48, 32, 49, 33, 50, 34, 51, 35,
                                                     20, 4,  21, 5,  22, 6,  23, 7,  52, 36, 53, 37, 54, 38, 55, 39,
                                                     24, 8,  25, 9,  26, 10, 27, 11, 56, 40, 57, 41, 58, 42, 59, 43,
                                                     28, 12, 29, 13, 30, 14, 31, 15, 60, 44, 61, 45, 62, 46, 63, 47};
  const __m512i ordered = _mm512_permutexvar_epi8(_mm512_load_si512(kOrder), codes);
  const __m512i low = _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3Bytes.low), ordered,
                                               _mm512_load_si512(kE4m3Bytes.low + 64)),
                high = _mm512_permutex2var_epi8(_mm512_load_si512(kE4m3Bytes.high), ordered,
                                                _mm512_load_si512(kE4m3Bytes.high + 64));
  const __m512i sign = _mm512_ternarylogic_epi32(high, ordered, _mm512_set1_epi8(-128), 0xF8);  // high | ordered & sign
  return {{_mm512_unpacklo_epi8(low, sign)}, {_mm512_unpackhi_epi8(low, sign)}};
}

// The sixteen values of e2m1 times 2^(scale - 127), twice, for every plain scale.
struct E2m1Tables {
  alignas(64) uint16_t values[kPlainScaleHigh - kPlainScaleLow + 1][32];
};
constexpr E2m1Tables make_e2m1_tables() {
  constexpr int kExponent[8] = {0, -1, 0, 0, 1, 1, 2, 2}, kHalf[8] = {0, 0, 0, 1, 0, 1, 0, 1};
  E2m1Tables tables{};
  for (int scale = kPlainScaleLow; scale <= kPlainScaleHigh; ++scale)
    for (int i = 0; i < 32; ++i) {
      const int code = i & 7, magnitude = code == 0 ? 0 : (scale + kExponent[code]) << 7 | kHalf[code] << 6;
      tables.values[scale - kPlainScaleLow][i] = static_cast<uint16_t>((i & 8) << 12 | magnitude);
    }
  return tables;
}
alignas(64) constexpr E2m1Tables kE2m1Tables = make_e2m1_tables();

// Block `g` of the 128 e2m1 codes in `bytes`; `shifted` is `bytes` moved right by four bits. Upper bits of an index are
// whatever stands beside the code: the table repeats and the instruction looks at five.
struct E2m1Order {
  alignas(64) uint8_t bytes[4][64];
};
constexpr E2m1Order make_e2m1_order() {
  E2m1Order order{};
  for (int g = 0; g < 4; ++g)
    for (int lane = 0; lane < 16; ++lane)
      for (int i = 0; i < 4; ++i)
        order.bytes[g][4 * lane + i] = static_cast<uint8_t>(lane % 2 * 64 + 16 * g + lane / 2 + (i < 2 ? 8 : 0));
  return order;
}
alignas(64) constexpr E2m1Order kE2m1Order = make_e2m1_order();
inline __m512i e2m1_order(int g) { return _mm512_load_si512(kE2m1Order.bytes[g]); }
[[gnu::always_inline]] inline Pairs pair_e2m1(__m512i bytes, __m512i shifted, __m512i order, uint8_t scale) {
  return {_mm512_permutexvar_epi16(_mm512_permutex2var_epi8(bytes, order, shifted),
                                   _mm512_load_si512(kE2m1Tables.values[scale - kPlainScaleLow]))};
}

}  // namespace
}  // namespace deepinfer
