// SPDX-License-Identifier: MIT
// Bodies of PairAttentionKernels (sparse_attention_kernels.h).
#include "kernels/lanes/cpu/lanes_bf16.h"

#include "kernels/sparse_attention/cpu/e4m3_values.h"
#include "kernels/sparse_attention/cpu/sparse_attention_kernels.h"

namespace deepinfer {
namespace {

constexpr int kBlock = 64;
constexpr uint8_t kScaleLow = 127 - 30, kScaleHigh = 127 + 30;  // of fp8 entries: values are multiples of 2^-39
constexpr float kProbabilityLow = 0x1p-80f, kSumLow = 0x1p-60f, kDecayLow = 0x1p-40f;

bool load_queries(const uint16_t* q, int64_t head_dim, uint16_t* out) {
  Range16 range;
  for (int64_t d = 0; d < head_dim; d += 32) {
    const Pairs pairs = pair_up(_mm512_loadu_si512(q + d));
    range.add(pairs);
    store_pairs(out + d, pairs);
  }
  return range.within(kPlainActivationLow, kPlainActivationHigh);
}

bool unpack_fp8(const uint8_t* row, int64_t head_dim, uint16_t* out) {
  const uint8_t* scales = row + head_dim;
  bool plain = true;
  for (int64_t d = 0; d < head_dim; d += 64) {
    const bool whole = d + 64 <= head_dim;
    const PairsPair w = pair_e4m3(_mm512_maskz_loadu_epi8(whole ? ~__mmask64{0} : 0xFFFFFFFF, row + d));
    plain = plain && scales[d / 32] >= kScaleLow && scales[d / 32] <= kScaleHigh;
    store_pairs(out + d, scale_pairs(w.first, scales[d / 32]));
    if (!whole) break;
    plain = plain && scales[d / 32 + 1] >= kScaleLow && scales[d / 32 + 1] <= kScaleHigh;
    store_pairs(out + d + 32, scale_pairs(w.second, scales[d / 32 + 1]));
  }
  return plain;
}

// Products of e2m1 and e4m3 have six significant bits: bf16 holds them.
void unpack_fp4(const uint8_t* row, int64_t head_dim, uint16_t* out) {
  const uint8_t* scales = row + head_dim / 2;
  for (int64_t d = 0; d < head_dim; d += 32) {
    const V16Pair codes = load_e2m1(row + d / 2, 1.f);
    store_pairs(out + d, make_pairs(mul(codes.first, set16(kE4m3Values.of_code[scales[d / 16]])),
                                    mul(codes.second, set16(kE4m3Values.of_code[scales[d / 16 + 1]]))));
  }
}

template <int kHeads>
void dot_heads(const uint16_t* q, int64_t head_dim, const uint16_t* entries, float* scores) {
  V16 acc[kHeads][8];
  for (auto& row : acc)
    for (V16& a : row) a = zero16();
  for (int64_t d = 0; d < head_dim; d += 32) {
    Pairs x[kHeads];
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) x[h] = load_pairs(q + h * head_dim + d);
#pragma GCC unroll 8
    for (int e = 0; e < 8; ++e) {
      const Pairs entry = load_pairs(entries + e * head_dim + d);
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) acc[h][e] = add_pair_products(acc[h][e], x[h], entry);
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
    _mm_storeu_ps(scores + h * kBlock, fold4(acc[h][0], acc[h][1], acc[h][2], acc[h][3]));
    _mm_storeu_ps(scores + h * kBlock + 4, fold4(acc[h][4], acc[h][5], acc[h][6], acc[h][7]));
  }
}

void dots(const uint16_t* q, int64_t heads, int64_t head_dim, const uint16_t* entries, float* scores) {
  for (int64_t e = 0; e < kBlock; e += 8) {
    int64_t h = 0;
    for (; h + 3 <= heads; h += 3)
      dot_heads<3>(q + h * head_dim, head_dim, entries + e * head_dim, scores + h * kBlock + e);
    for (; h + 2 <= heads; h += 2)
      dot_heads<2>(q + h * head_dim, head_dim, entries + e * head_dim, scores + h * kBlock + e);
    for (; h < heads; ++h) dot_heads<1>(q + h * head_dim, head_dim, entries + e * head_dim, scores + h * kBlock + e);
  }
}

// Of two entries side by side: the earlier one in the upper halves.
void pair_entries(const uint16_t* entries, int64_t head_dim, uint32_t* out) {
  for (int64_t e = 0; e < kBlock; e += 2, out += head_dim) {
    for (int64_t d = 0; d < head_dim; d += 32) {
      const Pairs first = load_pairs(entries + e * head_dim + d), second = load_pairs(entries + (e + 1) * head_dim + d);
      _mm512_storeu_si512(out + d, make_pairs(first_terms(first), first_terms(second)).v);
      _mm512_storeu_si512(out + d + 16, make_pairs(last_terms(first), last_terms(second)).v);
    }
  }
}

bool pair_probabilities(const float* probabilities, float decay, uint32_t* out) {
  const __m512i even = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30),
                odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
  __mmask16 small = 0;
  for (int e = 0; e < kBlock; e += 32) {
    const __m512 a = _mm512_loadu_ps(probabilities + e), b = _mm512_loadu_ps(probabilities + e + 16);
    const V16 first{_mm512_permutex2var_ps(a, even, b)}, second{_mm512_permutex2var_ps(a, odd, b)};
    const __m512 both[2] = {a, b};
    for (const __m512& p : both)
      small |= _mm512_cmp_ps_mask(p, _mm512_setzero_ps(), _CMP_NEQ_UQ) &
               _mm512_cmp_ps_mask(p, _mm512_set1_ps(kProbabilityLow), _CMP_NGE_UQ);
    _mm512_storeu_si512(out + e / 2, make_pairs(first, second).v);
  }
  return small == 0 && (decay >= kDecayLow || decay == 0);
}

template <int kHeads>
__m512i accumulate_tile(const uint32_t* probabilities, const float* decay, const uint32_t* entries, int64_t head_dim,
                        float* acc) {
  V16 sums[kHeads][2];
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) sums[h][v] = mul(load16(acc + h * head_dim + 16 * v), set16(decay[h]));
  for (int64_t e = 0; e < kBlock / 2; ++e) {
    const Pairs first{_mm512_loadu_si512(entries + e * head_dim)},
        second{_mm512_loadu_si512(entries + e * head_dim + 16)};
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      const Pairs p{_mm512_set1_epi32(static_cast<int>(probabilities[h * (kBlock / 2) + e]))};
      sums[h][0] = add_pair_products(sums[h][0], p, first);
      sums[h][1] = add_pair_products(sums[h][1], p, second);
    }
  }
  __m512i least = _mm512_set1_epi32(-1);  // the smallest nonzero magnitude, less one
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h)
#pragma GCC unroll 2
    for (int v = 0; v < 2; ++v) {
      store16(acc + h * head_dim + 16 * v, sums[h][v]);
      const __m512i size = _mm512_castps_si512(magnitude(sums[h][v]).v);
      least = _mm512_min_epu32(least, _mm512_sub_epi32(size, _mm512_set1_epi32(1)));
    }
  return least;
}

bool accumulate(const uint32_t* probabilities, const float* decay, const uint32_t* entries, int64_t heads,
                int64_t head_dim, float* acc) {
  __m512i least = _mm512_set1_epi32(-1);
  for (int64_t d = 0; d < head_dim; d += 32) {
    int64_t h = 0;
    for (; h + 8 <= heads; h += 8)
      least = _mm512_min_epu32(least, accumulate_tile<8>(probabilities + h * (kBlock / 2), decay + h, entries + d,
                                                         head_dim, acc + h * head_dim + d));
    for (; h < heads; ++h)
      least = _mm512_min_epu32(least, accumulate_tile<1>(probabilities + h * (kBlock / 2), decay + h, entries + d,
                                                         head_dim, acc + h * head_dim + d));
  }
  const __m512i low = _mm512_sub_epi32(_mm512_castps_si512(_mm512_set1_ps(kSumLow)), _mm512_set1_epi32(1));
  return _mm512_cmplt_epu32_mask(least, low) == 0;
}

constexpr PairAttentionKernels kPairAttentionKernels = {load_queries, unpack_fp8,         unpack_fp4, dots,
                                                        pair_entries, pair_probabilities, accumulate};

}  // namespace

const PairAttentionKernels& pair_attention_kernels_bf16() { return kPairAttentionKernels; }

}  // namespace deepinfer
