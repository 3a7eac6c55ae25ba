// SPDX-License-Identifier: MIT
// Bodies of ByteIndexerKernels (indexer_kernels.h): four dimensions of sixteen keys an instruction.
#include <immintrin.h>

#include <array>
#include <cstring>

#include "kernels/indexer/cpu/indexer_kernels.h"

namespace deepinfer {
namespace {

constexpr int kHeadDim = 128, kGroups = 4, kSteps = kHeadDim / 4, kKeys = 16;
constexpr int kShiftMost = 3;
constexpr int kMost =
    12 << kShiftMost;  // of a key's or head's integers; added to those of keys they are unsigned bytes
// Of units and weights: all products and sums stay among the normal numbers, their last bits too.
constexpr int kExponentLow = -30, kExponentHigh = 30;
constexpr float kBias = 0x1.8p23f;  // an integer below 2^22 added to its bits is added to its value

int exponent_of(float x) {  // of a normal number
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return static_cast<int>(bits >> 23 & 0xFF) - 127;
}
float power_of_two(int n) {
  const uint32_t bits = static_cast<uint32_t>(n + 127) << 23;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// The place of dimension k in a row of bytes: a step takes dimensions 8t, 8t+2, 8t+4, 8t+6 (low nibbles of four bytes
// of codes) or, in the upper half, their odd neighbours.
int place_of(int k) { return k % 2 * (kHeadDim / 2) + k / 2; }

// A head in units of its last nonzero bit.
bool prepare_head(const float* q, float weight, ByteHead& head) {
  float most = 0, least = 3e38f;  // least: the lowest set bit
  for (int k = 0; k < kHeadDim; ++k) {
    uint32_t bits;
    std::memcpy(&bits, &q[k], 4);
    if ((bits & 0x7FFFFFFF) == 0) continue;
    const int exponent = exponent_of(q[k]), low = exponent - 23 + __builtin_ctz((bits & 0x7FFFFF) | 0x800000);
    if (low < kExponentLow || exponent > kExponentHigh) return false;
    const float magnitude = q[k] < 0 ? -q[k] : q[k], unit = power_of_two(low);
    most = magnitude > most ? magnitude : most;
    least = unit < least ? unit : least;
  }
  if (most == 0) least = 1;
  if (most > least * kMost) return false;
  int32_t sum = 0;
  for (int k = 0; k < kHeadDim; ++k) {
    const int value = static_cast<int>(q[k] / least);
    head.q[place_of(k)] = static_cast<int8_t>(value);
    sum += value;
  }
  int32_t bits;
  std::memcpy(&bits, &kBias, 4);
  head.start = bits - kMost * sum;
  head.weight = weight * least;
  return weight == 0 || (exponent_of(weight) > kExponentLow && exponent_of(weight) < kExponentHigh);
}

bool prepare(const float* q, const float* weight, int64_t heads, int64_t head_dim, ByteHead* out) {
  if (head_dim != kHeadDim) return false;
  for (int64_t h = 0; h < heads; ++h)
    if (!prepare_head(q + h * kHeadDim, weight[h], out[h])) return false;
  return true;
}

void transpose(__m512i* r) {
  __m512i s[16];
  for (int i = 0; i < 16; i += 2) {
    s[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    s[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int j = 0; j < 2; ++j) {
      r[i + 2 * j] = _mm512_unpacklo_epi64(s[i + j], s[i + j + 2]);
      r[i + 2 * j + 1] = _mm512_unpackhi_epi64(s[i + j], s[i + j + 2]);
    }
  for (int i = 0; i < 16; i += 8)
    for (int j = 0; j < 4; ++j) {
      s[i + j] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0x88);
      s[i + j + 4] = _mm512_shuffle_i32x4(r[i + j], r[i + j + 4], 0xDD);
    }
  for (int j = 0; j < 4; ++j) {
    r[j] = _mm512_shuffle_i32x4(s[j], s[j + 8], 0x88);
    r[j + 8] = _mm512_shuffle_i32x4(s[j], s[j + 8], 0xDD);
    r[j + 4] = _mm512_shuffle_i32x4(s[j + 4], s[j + 12], 0x88);
    r[j + 12] = _mm512_shuffle_i32x4(s[j + 4], s[j + 12], 0xDD);
  }
}

// Of sixteen keys: the least scale of each, and how far each of its four scales lies above it, byte by byte.
struct Scales {
  __m512i least, above;
};

Scales scales_of(__m512i scales) {
  __m512i least = _mm512_min_epu8(scales, _mm512_rol_epi32(scales, 16));
  least = _mm512_min_epu8(least, _mm512_rol_epi32(least, 8));
  return {least, _mm512_sub_epi8(scales, least)};
}

// Shifts are small and units within range.
bool is_plain(const Scales& scales) {
  const __m512i above_low = _mm512_sub_epi8(scales.least, _mm512_set1_epi8(127 + kExponentLow + 1));
  return _mm512_cmpgt_epu8_mask(scales.above, _mm512_set1_epi8(kShiftMost)) == 0 &&
         _mm512_cmpge_epu8_mask(above_low, _mm512_set1_epi8(kExponentHigh - kExponentLow - kShiftMost)) == 0;
}

// A group of zeros takes any scale: here that of its key's least, or of one where all are zeros.
__m512i without_empty_groups(const __m512i* codes, __m512i scales) {
  __mmask64 empty = 0;
  for (int g = 0; g < kGroups; ++g) {
    __m512i any = codes[4 * g];
    for (int i = 1; i < 4; ++i) any = _mm512_or_si512(any, codes[4 * g + i]);
    const __mmask16 zero = _mm512_testn_epi32_mask(any, _mm512_set1_epi8(0x77));
    empty |= _mm512_test_epi8_mask(_mm512_maskz_set1_epi32(zero, 0xFF << 8 * g), _mm512_set1_epi8(-1));
  }
  const __m512i least = scales_of(_mm512_mask_mov_epi8(scales, empty, _mm512_set1_epi8(-1))).least;
  const __mmask64 none = _mm512_cmpeq_epi8_mask(least, _mm512_set1_epi8(-1));
  return _mm512_mask_mov_epi8(scales, empty, _mm512_mask_mov_epi8(least, none, _mm512_set1_epi8(127)));
}

// [shift, code] -> kMost + (the code's value in halves << shift), for a lookup by six bits.
alignas(64) constexpr auto kValues = [] {
  constexpr int kHalves[8] = {0, 1, 2, 3, 4, 6, 8, 12};
  std::array<uint8_t, 64> values{};
  for (int shift = 0; shift <= kShiftMost; ++shift)
    for (int code = 0; code < 16; ++code) {
      const int value = kHalves[code % 8] << shift;
      values[static_cast<size_t>(16 * shift + code)] = static_cast<uint8_t>(kMost + (code < 8 ? value : -value));
    }
  return values;
}();

// Sixteen keys as bytes, one dword of each key a step: [kSteps] registers. False where some key spans more than
// kShiftMost bits.
bool load_keys(const uint8_t* rows, int64_t row_stride, int64_t count, __m512i* keys, float* units) {
  __m512i codes[kKeys];
  alignas(64) uint32_t tails[kKeys];
  for (int j = 0; j < kKeys; ++j) {
    const uint8_t* row = rows + (j < count ? j : 0) * row_stride;
    codes[j] = _mm512_loadu_si512(row);
    std::memcpy(&tails[j], row + kHeadDim / 2, 4);
  }
  transpose(codes);
  Scales scales = scales_of(_mm512_load_si512(tails));
  if (!is_plain(scales)) {
    scales = scales_of(without_empty_groups(codes, _mm512_load_si512(tails)));
    if (!is_plain(scales)) return false;
  }
  const __m512i least = _mm512_and_si512(scales.least, _mm512_set1_epi32(255));
  _mm512_storeu_ps(units, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_sub_epi32(least, _mm512_set1_epi32(1)), 23)));
  const __m512i table = _mm512_load_si512(kValues.data()), nibble = _mm512_set1_epi8(15),
                shifts = _mm512_slli_epi16(scales.above, 4),
                first = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12));
  for (int t = 0; t < kSteps / 2; ++t) {
    constexpr int kMergeCode = 0xEA;  // (a & b) | c
    const __m512i shift =
                      _mm512_shuffle_epi8(shifts, _mm512_add_epi8(first, _mm512_set1_epi8(static_cast<char>(t / 4)))),
                  high = _mm512_srli_epi16(codes[t], 4);
    keys[t] = _mm512_permutexvar_epi8(_mm512_ternarylogic_epi32(codes[t], nibble, shift, kMergeCode), table);
    keys[t + kSteps / 2] = _mm512_permutexvar_epi8(_mm512_ternarylogic_epi32(high, nibble, shift, kMergeCode), table);
  }
  return true;
}

__m512 round_bf16(__m512 x) {
  const __m512i u = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF)), odd);
  return _mm512_castsi512_ps(_mm512_and_si512(r, _mm512_set1_epi32(-0x10000)));
}

// `dot` holds the bits of kBias plus a head's dot product. That times the weight, less kBias times it (exact: few
// bits) is rounded once, as the product alone.
__m512 add_head(__m512 sum, __m512i dot, float weight, bool round_steps) {
  const __m512 bias = _mm512_set1_ps(kBias), value = _mm512_max_ps(_mm512_castsi512_ps(dot), bias);
  if (round_steps)
    return _mm512_add_ps(sum,
                         round_bf16(_mm512_mul_ps(round_bf16(_mm512_sub_ps(value, bias)), _mm512_set1_ps(weight))));
  return _mm512_add_ps(sum, _mm512_fmsub_ps(value, _mm512_set1_ps(weight), _mm512_set1_ps(kBias * weight)));
}

// In place. From the intrinsic GCC 12 makes two register copies for each product of the loop below and puts sums on the
// stack: 62 instructions a step instead of 27, more than there are cycles for.
void add_products(__m512i& sum, __m512i key, __m512i query) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(key), "v"(query));
}

template <int kVectors, int kHeads>
void add_heads(const ByteHead* heads, const __m512i (*keys)[kSteps], bool round_steps, __m512* sums) {
  __m512i acc[kVectors][kHeads];
#pragma GCC unroll 4
  for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) acc[v][h] = _mm512_set1_epi32(heads[h].start);
  for (int t = 0; t < kSteps; ++t) {
    __m512i key[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) key[v] = keys[v][t];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      int32_t four;
      std::memcpy(&four, heads[h].q + 4 * t, 4);
      const __m512i query = _mm512_set1_epi32(four);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) add_products(acc[v][h], key[v], query);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) sums[v] = add_head(sums[v], acc[v][h], heads[h].weight, round_steps);
}

// The next keys on their way while these are multiplied: lines [begin, end) of those behind `next`.
void fetch(const uint8_t* next, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) __builtin_prefetch(next + 64 * i);
}

template <int kVectors>
bool score_vectors(const ByteHead* heads, int64_t num_heads, const uint8_t* rows, int64_t row_stride, int64_t count,
                   const uint8_t* next, bool round_steps, float* scores) {
  __m512i keys[kVectors][kSteps];
  float units[kVectors][kKeys];
  __m512 sums[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    if (!load_keys(rows + v * kKeys * row_stride, row_stride, count - v * kKeys, keys[v], units[v])) return false;
    sums[v] = _mm512_setzero_ps();
  }
  const int64_t lines = next ? (kVectors * kKeys * row_stride + 63) / 64 : 0;
  int64_t h = 0;
  for (; h + 4 <= num_heads; h += 4) {
    fetch(next, lines * h / num_heads, lines * (h + 4) / num_heads);
    add_heads<kVectors, 4>(heads + h, keys, round_steps, sums);
  }
  for (; h < num_heads; ++h) add_heads<kVectors, 1>(heads + h, keys, round_steps, sums);
  for (int v = 0; v < kVectors; ++v) {
    const __m512 sum = _mm512_mul_ps(round_steps ? round_bf16(sums[v]) : sums[v], _mm512_loadu_ps(units[v]));
    const int64_t rest = count - v * kKeys;
    _mm512_mask_storeu_ps(scores + v * kKeys, rest >= kKeys ? 0xFFFF : static_cast<__mmask16>((1u << rest) - 1), sum);
  }
  return true;
}

bool score(const ByteHead* heads, int64_t num_heads, const uint8_t* rows, int64_t row_stride, int64_t count,
           const uint8_t* next, bool round_steps, float* scores) {
  if (count > 3 * kKeys) return score_vectors<4>(heads, num_heads, rows, row_stride, count, next, round_steps, scores);
  for (int64_t j = 0; j < count; j += kKeys)
    if (!score_vectors<1>(heads, num_heads, rows + j * row_stride, row_stride, count - j < kKeys ? count - j : kKeys,
                          nullptr, round_steps, scores + j))
      return false;
  return true;
}

constexpr ByteIndexerKernels kByteIndexerKernels = {prepare, score};

}  // namespace

const ByteIndexerKernels& byte_indexer_kernels_vnni() { return kByteIndexerKernels; }

}  // namespace deepinfer
