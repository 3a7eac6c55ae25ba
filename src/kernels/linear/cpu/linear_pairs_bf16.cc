// SPDX-License-Identifier: MIT
// Bodies of PairKernels (linear_kernels.h). Every factor that reaches a dot product here is plain (lanes_bf16.h).
#include "kernels/lanes/cpu/lanes_bf16.h"

#include "kernels/linear/cpu/linear_kernels.h"
#include "kernels/linear/cpu/linear_lanes.h"

namespace deepinfer {
namespace {

void prepare_pairs(const uint16_t* x, int64_t size, bool round, uint16_t* out, uint8_t* flags) {
  for (int64_t k = 0; k < size; k += 32) {
    const V16Pair block = prepare_block(x + k, size - k, round);
    const Pairs pairs = make_pairs(block.first, block.second);
    store_pairs(out + k, pairs);
    Range16 range;
    range.add(pairs);
    flags[k / 32] = !range.within(kPlainActivationLow, kPlainActivationHigh);
  }
}

void widen_pairs(const uint16_t* x, int64_t in, float* out) {
  for (int64_t k = 0; k < in; k += 32) {
    const Pairs pairs = load_pairs(x + k);
    store16(out + k, weave(first_terms(pairs)));
    store16(out + k + 16, weave(last_terms(pairs)));
  }
}

bool flags_clear(const uint8_t* flags, int64_t size) {
  __m512i any = _mm512_setzero_si512();
  for (int64_t i = 0; i < size; i += 64) {
    const __mmask64 mask = size - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (size - i)) - 1;
    any = _mm512_or_si512(any, _mm512_maskz_loadu_epi8(mask, flags + i));
  }
  return _mm512_test_epi8_mask(any, any) == 0;
}

// Also fetches what follows: the scales of the next tile, which nothing else would ask for in time.
bool scales_plain(const uint8_t* scales, int64_t size) {
  const __m512i low = _mm512_set1_epi8(kPlainScaleLow), width = _mm512_set1_epi8(kPlainScaleHigh - kPlainScaleLow);
  __mmask64 outside = 0;
  for (int64_t i = 0; i < size; i += 64) {
    const __mmask64 mask = size - i >= 64 ? ~__mmask64{0} : (__mmask64{1} << (size - i)) - 1;
    _mm_prefetch(reinterpret_cast<const char*>(scales + size + i), _MM_HINT_T1);
    const __m512i above = _mm512_sub_epi8(_mm512_mask_loadu_epi8(low, mask, scales + i), low);
    outside |= _mm512_cmpgt_epu8_mask(above, width);
  }
  return outside == 0;
}

void fold_pair_scales(const uint16_t* x, int64_t in, const uint8_t* scales, uint16_t* out) {
  for (int64_t k = 0; k < in; k += 32) store_pairs(out + k, scale_pairs(load_pairs(x + k), scales[k / 32]));
  for (int64_t k = (in + 31) / 32 * 32; k < (in + 127) / 128 * 128; k += 32)
    store_pairs(out + k, {_mm512_setzero_si512()});
}

// 64 codes from column k of a row, or the last few and zeros.
[[gnu::always_inline]] inline __m512i load_codes(const uint8_t* row, int64_t k, int64_t end) {
  if (k + 64 <= end) return _mm512_loadu_si512(row + k);
  return _mm512_maskz_loadu_epi8((__mmask64{1} << (end - k)) - 1, row + k);
}

// kRows weight rows by kX activation rows. The rows that are walked next are fetched into the second cache meanwhile:
// so many lines are under way then that the first would have no room to remember them.
[[gnu::always_inline]] inline PairsPair load_fp8_row(const uint8_t* codes, int64_t in, int r, int num_rows, int64_t k) {
  const uint8_t* row = codes + r * in;
  _mm_prefetch(reinterpret_cast<const char*>(row + num_rows * in + k), _MM_HINT_T1);
  return pair_e4m3(load_codes(row, k, in));
}

template <int kRows, int kX>
void walk_fp8(const uint8_t* codes, int64_t in, const uint16_t* const* x, float* y, int64_t y_stride) {
  V16 acc[kX][kRows];
  for (auto& row : acc)
    for (V16& a : row) a = zero16();
  for (int64_t k = 0; k < in; k += 64) {
    if constexpr (kX == 1) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const PairsPair w = load_fp8_row(codes, in, r, kRows, k);
        acc[0][r] = add_pair_products(acc[0][r], w.first, load_pairs(x[0] + k));
        acc[0][r] = add_pair_products(acc[0][r], w.second, load_pairs(x[0] + k + 32));
      }
    } else {  // each block of x is loaded once for all rows: loads would be the bottleneck
      PairsPair w[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) w[r] = load_fp8_row(codes, in, r, kRows, k);
#pragma GCC unroll 8
      for (int m = 0; m < kX; ++m) {
        const Pairs first = load_pairs(x[m] + k), second = load_pairs(x[m] + k + 32);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r)
          acc[m][r] = add_pair_products(add_pair_products(acc[m][r], w[r].first, first), w[r].second, second);
      }
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m) fold_rows<kRows>(acc[m], y + m * y_stride);
}

struct Fp4Chunk {  // 128 codes
  __m512i bytes, shifted;
};
[[gnu::always_inline]] inline Fp4Chunk load_fp4_chunk(const uint8_t* codes, int64_t row_bytes, int r, int num_rows) {
  const uint8_t* row = codes + r * row_bytes;
  _mm_prefetch(reinterpret_cast<const char*>(row + num_rows * row_bytes), _MM_HINT_T1);
  const __m512i bytes = _mm512_loadu_si512(row);
  return {bytes, _mm512_srli_epi16(bytes, 4)};
}

template <int kRows, int kX>
void walk_fp4(const uint8_t* codes, const uint8_t* scales, int64_t in, const uint16_t* const* x, float* y,
              int64_t y_stride) {
  const int64_t row_bytes = in / 2, row_scales = in / 32;
  V16 acc[kX][kRows];
  for (auto& row : acc)
    for (V16& a : row) a = zero16();
  int64_t k = 0;
  for (; k + 128 <= in; k += 128) {
    if constexpr (kX <= 2) {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        const Fp4Chunk chunk = load_fp4_chunk(codes + k / 2, row_bytes, r, kRows);
        const uint8_t* scale = scales + r * row_scales + k / 32;
#pragma GCC unroll 4
        for (int g = 0; g < 4; ++g) {
          const Pairs w = pair_e2m1(chunk.bytes, chunk.shifted, e2m1_order(g), scale[g]);
#pragma GCC unroll 8
          for (int m = 0; m < kX; ++m) acc[m][r] = add_pair_products(acc[m][r], w, load_pairs(x[m] + k + 32 * g));
        }
      }
    } else {  // each block of x is loaded once for all rows: loads would be the bottleneck
      Fp4Chunk chunk[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) chunk[r] = load_fp4_chunk(codes + k / 2, row_bytes, r, kRows);
#pragma GCC unroll 4
      for (int g = 0; g < 4; ++g) {
        Pairs values[kX];
#pragma GCC unroll 8
        for (int m = 0; m < kX; ++m) values[m] = load_pairs(x[m] + k + 32 * g);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          const Pairs w =
              pair_e2m1(chunk[r].bytes, chunk[r].shifted, e2m1_order(g), scales[r * row_scales + k / 32 + g]);
#pragma GCC unroll 8
          for (int m = 0; m < kX; ++m) acc[m][r] = add_pair_products(acc[m][r], w, values[m]);
        }
      }
    }
  }
  for (int r = 0; r < kRows && k < in; ++r) {
    const __m512i bytes = load_codes(codes + r * row_bytes, k / 2, row_bytes), shifted = _mm512_srli_epi16(bytes, 4);
    for (int64_t g = 0; k + 32 * g < in; ++g) {
      const Pairs w = pair_e2m1(bytes, shifted, e2m1_order(g), scales[r * row_scales + k / 32 + g]);
      for (int m = 0; m < kX; ++m) acc[m][r] = add_pair_products(acc[m][r], w, load_pairs(x[m] + k + 32 * g));
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m) fold_rows<kRows>(acc[m], y + m * y_stride);
}

// Weights of bf16 are not known to be plain before they pass: `range` has seen them all when the walk is over.
template <int kRows, int kX>
void walk_bf16(const uint16_t* values, int64_t in, const uint16_t* const* x, Range16& range, float* y,
               int64_t y_stride) {
  V16 acc[kX][kRows];
  for (auto& row : acc)
    for (V16& a : row) a = zero16();
  for (int64_t k = 0; k < in; k += 32) {
    const int64_t rest = in - k;
    const __mmask32 mask = rest >= 32 ? ~__mmask32{0} : (__mmask32{1} << rest) - 1;
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      _mm_prefetch(reinterpret_cast<const char*>(values + (r + kRows) * in + k), _MM_HINT_T1);
      const Pairs w = pair_up(_mm512_maskz_loadu_epi16(mask, values + r * in + k));
      range.add(w);
#pragma GCC unroll 8
      for (int m = 0; m < kX; ++m) acc[m][r] = add_pair_products(acc[m][r], w, load_pairs(x[m] + k));
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m) fold_rows<kRows>(acc[m], y + m * y_stride);
}

template <int kX>
bool walk_all_bf16(const uint16_t* values, int64_t in, const uint16_t* const* x, int64_t num_out, float* y,
                   int64_t y_stride) {
  Range16 range;
  int64_t o = 0;
  for (; o + 4 <= num_out && kX <= 6; o += 4) walk_bf16<4, kX>(values + o * in, in, x, range, y + o, y_stride);
  for (; o + 2 <= num_out; o += 2) walk_bf16<2, kX>(values + o * in, in, x, range, y + o, y_stride);
  for (; o < num_out; ++o) walk_bf16<1, kX>(values + o * in, in, x, range, y + o, y_stride);
  return range.within(kPlainWeightLow, kPlainWeightHigh);
}

template <int kRows, int kX>
void walk_all_fp8(const uint8_t* codes, int64_t in, const uint16_t* const* x, int64_t num_out, float* y,
                  int64_t y_stride) {
  int64_t o = 0;
  for (; o + kRows <= num_out; o += kRows) walk_fp8<kRows, kX>(codes + o * in, in, x, y + o, y_stride);
  for (; o < num_out; ++o) walk_fp8<1, kX>(codes + o * in, in, x, y + o, y_stride);
}
template <int kRows, int kX>
void walk_all_fp4(const uint8_t* codes, const uint8_t* scales, int64_t in, const uint16_t* const* x, int64_t num_out,
                  float* y, int64_t y_stride) {
  int64_t o = 0;
  for (; o + kRows <= num_out; o += kRows)
    walk_fp4<kRows, kX>(codes + o * in / 2, scales + o * in / 32, in, x, y + o, y_stride);
  for (; o < num_out; ++o) walk_fp4<1, kX>(codes + o * in / 2, scales + o * in / 32, in, x, y + o, y_stride);
}

void fp8_rows_in_pairs(const uint8_t* codes, int64_t in, const uint16_t* const* x, int64_t num_x, int64_t num_out,
                       float* y, int64_t y_stride) {
  for (; num_x > 8; num_x -= 8, x += 8, y += 8 * y_stride) walk_all_fp8<2, 8>(codes, in, x, num_out, y, y_stride);
  if (num_x == 8) walk_all_fp8<2, 8>(codes, in, x, num_out, y, y_stride);
  if (num_x == 7) walk_all_fp8<2, 7>(codes, in, x, num_out, y, y_stride);
  if (num_x == 6) walk_all_fp8<2, 6>(codes, in, x, num_out, y, y_stride);
  if (num_x == 5) walk_all_fp8<2, 5>(codes, in, x, num_out, y, y_stride);
  if (num_x == 4) walk_all_fp8<4, 4>(codes, in, x, num_out, y, y_stride);
  if (num_x == 3) walk_all_fp8<4, 3>(codes, in, x, num_out, y, y_stride);
  if (num_x == 2) walk_all_fp8<8, 2>(codes, in, x, num_out, y, y_stride);
  if (num_x == 1) walk_all_fp8<8, 1>(codes, in, x, num_out, y, y_stride);
}
void fp4_rows_in_pairs(const uint8_t* codes, const uint8_t* scales, int64_t in, const uint16_t* const* x, int64_t num_x,
                       int64_t num_out, float* y, int64_t y_stride) {
  for (; num_x > 8; num_x -= 8, x += 8, y += 8 * y_stride)
    walk_all_fp4<2, 8>(codes, scales, in, x, num_out, y, y_stride);
  if (num_x == 8) walk_all_fp4<2, 8>(codes, scales, in, x, num_out, y, y_stride);
  if (num_x == 7) walk_all_fp4<2, 7>(codes, scales, in, x, num_out, y, y_stride);
  if (num_x == 6) walk_all_fp4<2, 6>(codes, scales, in, x, num_out, y, y_stride);
  if (num_x == 5) walk_all_fp4<2, 5>(codes, scales, in, x, num_out, y, y_stride);
  if (num_x == 4) walk_all_fp4<4, 4>(codes, scales, in, x, num_out, y, y_stride);
  if (num_x == 3) walk_all_fp4<4, 3>(codes, scales, in, x, num_out, y, y_stride);
  if (num_x == 2) walk_all_fp4<8, 2>(codes, scales, in, x, num_out, y, y_stride);
  if (num_x == 1) walk_all_fp4<16, 1>(codes, scales, in, x, num_out, y, y_stride);
}

bool bf16_rows_in_pairs(const uint16_t* values, int64_t in, const uint16_t* const* x, int64_t num_x, int64_t num_out,
                        float* y, int64_t y_stride) {
  switch (num_x) {
    case 3: return walk_all_bf16<3>(values, in, x, num_out, y, y_stride);
    case 4: return walk_all_bf16<4>(values, in, x, num_out, y, y_stride);
    case 5: return walk_all_bf16<5>(values, in, x, num_out, y, y_stride);
    case 6: return walk_all_bf16<6>(values, in, x, num_out, y, y_stride);
    case 7: return walk_all_bf16<7>(values, in, x, num_out, y, y_stride);
    case 8: return walk_all_bf16<8>(values, in, x, num_out, y, y_stride);
  }
  return false;  // fewer are bound by memory over fp32 lanes already
}

void unpack_fp8_pairs(const uint8_t* codes, const uint8_t* scales, int64_t in, const PanelShape& shape, uint16_t* out) {
  const int64_t end = shape.k_begin + shape.k_size;
  for (int64_t o = 0; o < shape.num_out; ++o, out += shape.width()) {
    for (int64_t k = shape.k_begin; k < end; k += 64) {
      const PairsPair w = pair_e4m3(load_codes(codes + o * in, k, end));
      store_pairs(out + k - shape.k_begin, scale_pairs(w.first, scales[k / 32]));
      if (k + 32 < end) store_pairs(out + k - shape.k_begin + 32, scale_pairs(w.second, scales[k / 32 + 1]));
    }
  }
}
void unpack_fp4_pairs(const uint8_t* codes, const uint8_t* scales, int64_t in, const PanelShape& shape, uint16_t* out) {
  for (int64_t o = 0; o < shape.num_out; ++o) {
    const uint8_t *row = codes + (o * in + shape.k_begin) / 2, *scale = scales + (o * in + shape.k_begin) / 32;
    for (int64_t k = 0; k < shape.k_size; k += 128) {
      const __m512i bytes = load_codes(row, k / 2, shape.k_size / 2), shifted = _mm512_srli_epi16(bytes, 4);
      for (int g = 0; g < 4 && k + 32 * g < shape.k_size; ++g, out += 32)
        store_pairs(out, pair_e2m1(bytes, shifted, e2m1_order(g), scale[k / 32 + g]));
    }
  }
}
bool unpack_bf16_pairs(const uint16_t* values, int64_t in, const PanelShape& shape, uint16_t* out) {
  Range16 range;
  for (int64_t o = 0; o < shape.num_out; ++o) {
    const uint16_t* row = values + o * in + shape.k_begin;
    for (int64_t k = 0; k < shape.k_size; k += 32, out += 32) {
      const int64_t rest = shape.k_size - k;
      const __mmask32 mask = rest >= 32 ? ~__mmask32{0} : (__mmask32{1} << rest) - 1;
      const Pairs w = pair_up(_mm512_maskz_loadu_epi16(mask, row + k));
      range.add(w);
      store_pairs(out, w);
    }
  }
  return range.within(kPlainWeightLow, kPlainWeightHigh);
}

struct PairTerms {
  using Element = uint16_t;
  using Value = Pairs;
  static constexpr int kTerms = 32, kX = kPanelX, kW = kPanelW;
  static Pairs load(const uint16_t* p) { return load_pairs(p); }
  static V16 add_products(V16 sum, Pairs x, Pairs w) { return add_pair_products(sum, x, w); }
  static V16 in_order(V16 sum) { return sum; }
};
void panel_in_pairs(const uint16_t* const* x, int64_t num_x, const uint16_t* weights, const PanelShape& shape,
                    const PanelSums& sums) {
  multiply_panel<PairTerms>(x, num_x, weights, shape, sums);
}

constexpr PairKernels kPairKernels = {prepare_pairs,    widen_pairs,       flags_clear,       scales_plain,
                                      fold_pair_scales, fp8_rows_in_pairs, fp4_rows_in_pairs, bf16_rows_in_pairs,
                                      unpack_fp8_pairs, unpack_fp4_pairs,  unpack_bf16_pairs, panel_in_pairs};

}  // namespace

const PairKernels& pair_kernels_bf16() { return kPairKernels; }

}  // namespace deepinfer
