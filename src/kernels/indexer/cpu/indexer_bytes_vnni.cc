// SPDX-License-Identifier: MIT
// Bodies of ByteIndexerKernels (indexer_kernels.h): four dimensions of sixteen keys an instruction.
#include <immintrin.h>

#include <cstring>

#include "kernels/indexer/cpu/indexer_kernels.h"

namespace deepinfer {
namespace {

constexpr int kHeadDim = 128, kGroups = 4, kSteps = kHeadDim / 4, kKeys = 16;
constexpr int kOffset = 96;                            // makes query bytes unsigned
constexpr int kShiftMost = 3;                          // 12 << 3 = 96
constexpr int kExponentLow = -60, kExponentHigh = 60;  // of units and weights: no product leaves the normal numbers

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
bool prepare_head(const float* q, float weight, uint8_t* bytes, float* scaled_weight) {
  float most = 0, least = 3e38f;  // least: the lowest set bit
  for (int k = 0; k < kHeadDim; ++k) {
    uint32_t bits;
    std::memcpy(&bits, &q[k], 4);
    if ((bits & 0x7FFFFFFF) == 0) continue;
    const int exponent = exponent_of(q[k]), low = exponent - 23 + __builtin_ctz((bits & 0x7FFFFF) | 0x800000);
    if (exponent < kExponentLow || exponent > kExponentHigh) return false;
    const float magnitude = q[k] < 0 ? -q[k] : q[k], unit = power_of_two(low);
    most = magnitude > most ? magnitude : most;
    least = unit < least ? unit : least;
  }
  if (most == 0) least = 1;
  if (most > least * kOffset) return false;
  for (int k = 0; k < kHeadDim; ++k)
    bytes[place_of(k)] = static_cast<uint8_t>(kOffset + static_cast<int>(q[k] / least));
  *scaled_weight = weight * least;
  return weight == 0 || (exponent_of(weight) > kExponentLow && exponent_of(weight) < kExponentHigh);
}

bool prepare(const float* q, const float* weight, int64_t heads, int64_t head_dim, uint8_t* bytes,
             float* scaled_weight) {
  if (head_dim != kHeadDim) return false;
  for (int64_t h = 0; h < heads; ++h)
    if (!prepare_head(q + h * kHeadDim, weight[h], bytes + h * kHeadDim, scaled_weight + h)) return false;
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

// The scales of a group of sixteen keys as shifts over the least of each key, and that least one as a number (times
// half, the unit of e2m1). A group of zeros takes any scale. False where some key spans more than kShiftMost bits.
bool unify_scales(const __m512i* codes, const __m512i* scales, __m512i* shifts, float* units) {
  const __m512i none = _mm512_set1_epi32(255);
  __m512i least = none, most = _mm512_setzero_si512(), scale[kGroups];
  for (int g = 0; g < kGroups; ++g) {
    __m512i any = codes[4 * g];
    for (int i = 1; i < 4; ++i) any = _mm512_or_si512(any, codes[4 * g + i]);
    const __mmask16 zero = _mm512_testn_epi32_mask(any, _mm512_set1_epi8(0x77));
    scale[g] = _mm512_and_si512(_mm512_srli_epi32(*scales, 8 * g), _mm512_set1_epi32(255));
    least = _mm512_mask_min_epi32(least, static_cast<__mmask16>(~zero), least, scale[g]);
    most = _mm512_mask_max_epi32(most, static_cast<__mmask16>(~zero), most, scale[g]);
  }
  const __mmask16 empty = _mm512_cmpeq_epi32_mask(least, none);
  least = _mm512_mask_mov_epi32(least, empty, _mm512_set1_epi32(127));
  most = _mm512_mask_mov_epi32(most, empty, _mm512_set1_epi32(127));
  const __mmask16 plain = _mm512_cmple_epi32_mask(_mm512_sub_epi32(most, least), _mm512_set1_epi32(kShiftMost)) &
                          _mm512_cmpgt_epi32_mask(least, _mm512_set1_epi32(127 + kExponentLow)) &
                          _mm512_cmplt_epi32_mask(most, _mm512_set1_epi32(127 + kExponentHigh));
  for (int g = 0; g < kGroups; ++g)
    shifts[g] = _mm512_max_epi32(_mm512_sub_epi32(scale[g], least), _mm512_setzero_si512());
  _mm512_storeu_ps(units, _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_sub_epi32(least, _mm512_set1_epi32(1)), 23)));
  return plain == 0xFFFF;
}

// Sixteen keys as signed bytes, one dword of each key a step: [kSteps] registers, and minus kOffset times their sums.
bool load_keys(const uint8_t* rows, int64_t row_stride, int64_t count, __m512i* keys, __m512i* start, float* units) {
  __m512i codes[kKeys], shifts[kGroups];
  alignas(64) uint32_t tails[kKeys];
  for (int j = 0; j < kKeys; ++j) {
    const uint8_t* row = rows + (j < count ? j : 0) * row_stride;
    codes[j] = _mm512_loadu_si512(row);
    std::memcpy(&tails[j], row + kHeadDim / 2, 4);
  }
  transpose(codes);
  const __m512i scales = _mm512_load_si512(tails);
  if (!unify_scales(codes, &scales, shifts, units)) return false;
  const __m512i table = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12)),
                nibble = _mm512_set1_epi8(15), offset = _mm512_set1_epi8(kOffset);
  __m512i sum = _mm512_setzero_si512();
  for (int t = 0; t < kSteps / 2; ++t) {
    // The values are multiples of 1 << shift: moving a negative byte's bits left is right as long as its neighbours'
    // are masked away.
    const __m512i shift = shifts[t / 4], mask = _mm512_sllv_epi32(_mm512_set1_epi32(0x01010101), shift),
                  keep = _mm512_sub_epi8(_mm512_setzero_si512(), mask);
    const __m512i low = _mm512_shuffle_epi8(table, _mm512_and_si512(codes[t], nibble)),
                  high = _mm512_shuffle_epi8(table, _mm512_and_si512(_mm512_srli_epi16(codes[t], 4), nibble));
    keys[t] = _mm512_and_si512(_mm512_sllv_epi32(low, shift), keep);
    keys[t + kSteps / 2] = _mm512_and_si512(_mm512_sllv_epi32(high, shift), keep);
    sum = _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(sum, offset, keys[t]), offset, keys[t + kSteps / 2]);
  }
  *start = _mm512_sub_epi32(_mm512_setzero_si512(), sum);
  return true;
}

__m512 round_bf16(__m512 x) {
  const __m512i u = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
  const __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7FFF)), odd);
  return _mm512_castsi512_ps(_mm512_and_si512(r, _mm512_set1_epi32(-0x10000)));
}

__m512 add_head(__m512 sum, __m512i dot, float weight, bool round_steps) {
  __m512 value = _mm512_cvtepi32_ps(_mm512_max_epi32(dot, _mm512_setzero_si512()));
  if (round_steps) value = round_bf16(value);
  const __m512 term = _mm512_mul_ps(value, _mm512_set1_ps(weight));
  return _mm512_add_ps(sum, round_steps ? round_bf16(term) : term);
}

template <int kVectors, int kHeads>
void add_heads(const uint8_t* q, const float* weight, const __m512i (*keys)[kSteps], const __m512i* start,
               bool round_steps, __m512* sums) {
  __m512i acc[kVectors][kHeads];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) acc[v][h] = start[v];
  for (int t = 0; t < kSteps; ++t) {
    __m512i key[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) key[v] = keys[v][t];
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) {
      int32_t four;
      std::memcpy(&four, q + h * kHeadDim + 4 * t, 4);
      const __m512i query = _mm512_set1_epi32(four);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) acc[v][h] = _mm512_dpbusd_epi32(acc[v][h], query, key[v]);
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v)
#pragma GCC unroll 4
    for (int h = 0; h < kHeads; ++h) sums[v] = add_head(sums[v], acc[v][h], weight[h], round_steps);
}

template <int kVectors>
bool score_vectors(const uint8_t* q, const float* weight, int64_t heads, const uint8_t* rows, int64_t row_stride,
                   int64_t count, bool round_steps, float* scores) {
  __m512i keys[kVectors][kSteps], start[kVectors];
  float units[kVectors][kKeys];
  __m512 sums[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    if (!load_keys(rows + v * kKeys * row_stride, row_stride, count - v * kKeys, keys[v], &start[v], units[v]))
      return false;
    sums[v] = _mm512_setzero_ps();
  }
  int64_t h = 0;
  for (; h + 4 <= heads; h += 4) add_heads<kVectors, 4>(q + h * kHeadDim, weight + h, keys, start, round_steps, sums);
  for (; h < heads; ++h) add_heads<kVectors, 1>(q + h * kHeadDim, weight + h, keys, start, round_steps, sums);
  for (int v = 0; v < kVectors; ++v) {
    const __m512 sum = _mm512_mul_ps(round_steps ? round_bf16(sums[v]) : sums[v], _mm512_loadu_ps(units[v]));
    const int64_t rest = count - v * kKeys;
    _mm512_mask_storeu_ps(scores + v * kKeys, rest >= kKeys ? 0xFFFF : static_cast<__mmask16>((1u << rest) - 1), sum);
  }
  return true;
}

bool score(const uint8_t* q, const float* weight, int64_t heads, const uint8_t* rows, int64_t row_stride, int64_t count,
           bool round_steps, float* scores) {
  if (count > 3 * kKeys) return score_vectors<4>(q, weight, heads, rows, row_stride, count, round_steps, scores);
  for (int64_t j = 0; j < count; j += kKeys)
    if (!score_vectors<1>(q, weight, heads, rows + j * row_stride, row_stride, count - j < kKeys ? count - j : kKeys,
                          round_steps, scores + j))
      return false;
  return true;
}

constexpr ByteIndexerKernels kByteIndexerKernels = {prepare, score};

}  // namespace

const ByteIndexerKernels& byte_indexer_kernels_vnni() { return kByteIndexerKernels; }

}  // namespace deepinfer
