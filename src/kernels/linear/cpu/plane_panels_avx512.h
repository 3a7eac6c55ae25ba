// SPDX-License-Identifier: MIT
// Panels of weights and rows of activations in the order of planes (linear_planes.h), at level avx512. Everything has
// internal linkage, as in lanes_avx512.h.
#pragma once

#include "kernels/lanes/cpu/lanes_avx512.h"
#include "kernels/linear/cpu/linear_planes.h"

namespace deepinfer {
namespace {

// Sixteen rows of bytes, of which stretches of 64 are read; the last may be shorter: then zeros fill it up to
// kBlockBytes, those of 32 columns. Of single bytes (FP8) those of four rows by four columns change places within
// words.
template <int kBlockBytes>
class SixteenRows {
 public:
  // Rows from `first` on; the last of num_out stands again for those that are missing.
  SixteenRows(const uint8_t* bytes, int64_t row_bytes, int64_t first, int64_t num_out) {
    for (int64_t r = 0; r < 16; ++r) rows_[r] = bytes + (first + r < num_out ? first + r : num_out - 1) * row_bytes;
  }
  // Calls column(d, words) with word d of all rows in a register, for the words of the stretch of `size` from byte
  // `begin` on.
  template <typename Function>
  [[gnu::always_inline]] inline void each_word(int64_t begin, int64_t size, const Function& column) {
    if (size >= 64) {
#pragma GCC unroll 4
      for (int d = 0; d < 16; d += 4) four_words(rows_, begin + 4 * d, d, column);
      return;
    }
    alignas(64) uint8_t copy[16][64];
    const uint8_t* copies[16];
    for (int r = 0; r < 16; ++r) {
      _mm512_store_si512(copy[r], _mm512_maskz_loadu_epi8((__mmask64{1} << size) - 1, rows_[r] + begin));
      copies[r] = copy[r];
    }
    const int64_t num_words = (size + kBlockBytes - 1) / kBlockBytes * kBlockBytes / 4;
    for (int d = 0; d < num_words; d += 4) four_words(copies, 4 * d, d, column);
  }

 private:
  // Loads put four rows side by side, so that shuffles within quarters of registers are left: loads of quarters go to
  // either port of the vectors, shuffles to one.
  template <typename Function>
  [[gnu::always_inline]] static inline void four_words(const uint8_t* const (&rows)[16], int64_t at, int d,
                                                       const Function& column) {
    __m512i z[4];
#pragma GCC unroll 4
    for (int r = 0; r < 4; ++r) {
      const auto quarter = [&](int q) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[4 * q + r] + at));
      };
      z[r] = _mm512_inserti32x4(_mm512_castsi128_si512(quarter(0)), quarter(1), 1);
      z[r] = _mm512_inserti32x4(_mm512_inserti32x4(z[r], quarter(2), 2), quarter(3), 3);
    }
    if constexpr (kBlockBytes == 32) {
      const __m512i low = _mm512_unpacklo_epi8(z[0], z[1]), high = _mm512_unpackhi_epi8(z[0], z[1]),
                    low_rest = _mm512_unpacklo_epi8(z[2], z[3]), high_rest = _mm512_unpackhi_epi8(z[2], z[3]);
      column(d, _mm512_unpacklo_epi16(low, low_rest));
      column(d + 1, _mm512_unpackhi_epi16(low, low_rest));
      column(d + 2, _mm512_unpacklo_epi16(high, high_rest));
      column(d + 3, _mm512_unpackhi_epi16(high, high_rest));
      return;
    }
    const __m512i low = _mm512_unpacklo_epi32(z[0], z[1]), high = _mm512_unpackhi_epi32(z[0], z[1]),
                  low_rest = _mm512_unpacklo_epi32(z[2], z[3]), high_rest = _mm512_unpackhi_epi32(z[2], z[3]);
    column(d, _mm512_unpacklo_epi64(low, low_rest));
    column(d + 1, _mm512_unpackhi_epi64(low, low_rest));
    column(d + 2, _mm512_unpacklo_epi64(high, high_rest));
    column(d + 3, _mm512_unpackhi_epi64(high, high_rest));
  }
  const uint8_t* rows_[16];
};

void spread(const float* woven, int64_t begin, int64_t size, int64_t in, float* planes) {
  const int64_t steps = plane_steps(in);
  int64_t k = begin;
  for (; k + 256 <= begin + size; k += 256) {  // sixteen columns of every plane
    SixteenRows<64> columns(reinterpret_cast<const uint8_t*>(woven + k), 64, 0, 16);
    columns.each_word(0, 64, [&](int d, __m512i words) {  // woven: lanes 0, 8, 1, 9, ...
      _mm512_storeu_si512(planes + (d % 2 * 8 + d / 2) * steps + k / kPlanes, words);
    });
  }
  for (; k < begin + size; k += 32) {
    // Two columns of every plane lie side by side.
    const __m512 first = unweave({_mm512_loadu_ps(woven + k)}).v, last = unweave({_mm512_loadu_ps(woven + k + 16)}).v;
    alignas(64) float pairs[2][16];  // lanes 0, 1, 4, 5, ... and 2, 3, 6, 7, ...
    _mm512_store_ps(pairs[0], _mm512_unpacklo_ps(first, last));
    _mm512_store_ps(pairs[1], _mm512_unpackhi_ps(first, last));
    float* to = planes + k / kPlanes;
    for (int l = 0; l < 16; ++l, to += steps) __builtin_memcpy(to, pairs[l / 2 % 2] + l / 4 * 4 + l % 2 * 2, 8);
  }
}

inline __m512 e8m0_floats(__m512i codes) {
  return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_slli_epi32(codes, 23), _mm512_set1_epi32(0x00400000)));
}

constexpr int64_t kStepBytes = 128;

// The weights after a panel of `shape`, for a tile of which `rows` stand `stride` bytes apart, each with the columns in
// one stretch: the panel's begin at `codes` and take `bytes` of each row. Next are those behind them or, after the last
// columns, the first of the next outputs.
AheadLines lines_ahead(const uint8_t* codes, int64_t rows, int64_t stride, int64_t bytes, const PlaneShape& shape) {
  const int64_t row_runs = bytes / (64 * (shape.steps() / 8 + (shape.steps() < 8)));
  const bool last = shape.k_begin + shape.k_size >= shape.in;
  const uint8_t* next = last ? codes + rows * stride - shape.k_begin * bytes / shape.k_size : codes + bytes;
  return {codes, next, stride, row_runs, row_runs * rows};
}

void widen_scales_fp8(const uint8_t* scales, const PlaneShape& shape, float* out) {
  for (int64_t b = 0; b < shape.steps() / 2; ++b)
    out[b] = _mm512_cvtss_f32(e8m0_floats(_mm512_set1_epi32(scales[shape.k_begin / 32 + b])));
}

PlanePanel turn_fp8(const uint8_t* codes, const uint8_t* scales, const PlaneShape& shape, const PanelMemory& memory) {
  const __m512i order = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
  const int64_t steps = shape.steps();
  SixteenRows<32> upper(codes + shape.k_begin, shape.in, 0, shape.num_out),
      lower(codes + shape.k_begin, shape.in, 16, shape.num_out);
  for (int64_t c = 0; c < shape.k_size; c += 64) {
    __m512i first[16];  // one column of four planes a word
    upper.each_word(c, shape.k_size - c, [&](int d, __m512i words) { first[d] = words; });
    lower.each_word(c, shape.k_size - c, [&](int d, __m512i words) {
      uint8_t* to = memory.codes + (d % 4 * steps + c / 16 + d / 4) * kStepBytes;
      _mm512_storeu_si512(to, _mm512_permutex2var_epi32(first[d], order, words));
      _mm512_storeu_si512(to + 64,
                          _mm512_permutex2var_epi32(first[d], _mm512_add_epi32(order, _mm512_set1_epi32(2)), words));
    });
  }
  widen_scales_fp8(scales, shape, memory.scales);
  return {memory.codes, steps * kStepBytes, memory.scales, true,
          lines_ahead(codes + shape.k_begin, kPlaneOut, shape.in, shape.k_size, shape)};
}

// Scales of sixteen outputs from `first` on: [block, kPlaneOut] floats.
void turn_scales(const uint8_t* scales, int64_t first, const PlaneShape& shape, float* out) {
  const __m512i places = _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)),
                                          _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)),
                last = _mm512_set1_epi32(static_cast<int>(shape.num_out - 1)),
                offsets = _mm512_mullo_epi32(_mm512_min_epi32(places, last),
                                             _mm512_set1_epi32(static_cast<int>(shape.in / 32)));
  const int64_t num_blocks = shape.steps() / 2;
  int64_t b = 0;
  for (; b + 4 <= num_blocks; b += 4) {
    __m512i four = _mm512_i32gather_epi32(offsets, scales + b, 1);
    for (int i = 0; i < 4; ++i, four = _mm512_srli_epi32(four, 8))
      _mm512_storeu_ps(out + (b + i) * kPlaneOut, e8m0_floats(_mm512_and_si512(four, _mm512_set1_epi32(255))));
  }
  alignas(64) int32_t places_in_rows[16];
  _mm512_store_si512(places_in_rows, offsets);
  for (; b < num_blocks; ++b) {
    alignas(64) uint32_t one[16];
    for (int r = 0; r < 16; ++r) one[r] = scales[places_in_rows[r] + b];
    _mm512_storeu_ps(out + b * kPlaneOut, e8m0_floats(_mm512_load_si512(one)));
  }
}

PlanePanel turn_fp4(const uint8_t* codes, const uint8_t* scales, const PlaneShape& shape, const PanelMemory& memory) {
  const int64_t steps = shape.steps(), in = shape.in;
  for (int64_t first = 0; first < kPlaneOut; first += 16) {
    SixteenRows<16> rows(codes + shape.k_begin / 2, in / 2, first, shape.num_out);
    for (int64_t c = 0; c < shape.k_size; c += 128)
      rows.each_word(c / 2, (shape.k_size - c) / 2, [&](int d, __m512i words) {
        _mm512_storeu_si512(memory.codes + (d % 2 * steps + c / 16 + d / 2) * kStepBytes + first * 4, words);
      });
    turn_scales(scales + shape.k_begin / 32, first, shape, memory.scales + first);
  }
  return {memory.codes, steps * kStepBytes, memory.scales, true,
          lines_ahead(codes + shape.k_begin / 2, kPlaneOut, in / 2, shape.k_size / 2, shape)};
}

// Line [l / 2, k, half]: columns of two planes of sixteen outputs.
PlanePanel turn_bf16(const uint16_t* values, const PlaneShape& shape, const PanelMemory& memory) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(values + shape.k_begin);
  const int64_t steps = shape.steps();
  for (int64_t first = 0; first < kPlaneOut; first += 16) {
    SixteenRows<64> rows(bytes, 2 * shape.in, first, shape.num_out);
    for (int64_t c = 0; c < shape.k_size; c += 32)
      rows.each_word(2 * c, 2 * (shape.k_size - c), [&](int d, __m512i words) {
        _mm512_storeu_si512(memory.codes + (d % 8 * steps + c / 16 + d / 8) * kStepBytes + first * 4, words);
      });
  }
  return {memory.codes, steps * kStepBytes, memory.scales, true,
          lines_ahead(bytes, kPlaneOut, 2 * shape.in, 2 * shape.k_size, shape)};
}

PlanePanel opened(const uint8_t* codes, int64_t parts, const PlaneShape& shape, bool is_last,
                  const PanelMemory& memory) {
  const uint8_t* from = codes + shape.k_begin / kPlanes * kStepBytes;
  const int64_t part_bytes = shape.row_steps() * kStepBytes;
  return {from, part_bytes, memory.scales, !is_last,
          lines_ahead(from, parts, part_bytes, shape.steps() * kStepBytes, shape)};
}
PlanePanel open_fp8(const uint8_t* codes, const uint8_t* scales, const PlaneShape& shape, bool is_last,
                    const PanelMemory& memory) {
  widen_scales_fp8(scales, shape, memory.scales);
  return opened(codes, 4, shape, is_last, memory);
}
PlanePanel open_fp4(const uint8_t* codes, const uint8_t* scales, const PlaneShape& shape, bool is_last,
                    const PanelMemory& memory) {
  const uint8_t* from = scales + shape.k_begin / 32 * kPlaneOut;
  for (int64_t i = 0; i < shape.k_size; i += 16)
    _mm512_storeu_ps(memory.scales + i,
                     e8m0_floats(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + i)))));
  return opened(codes, 2, shape, is_last, memory);
}

}  // namespace
}  // namespace deepinfer
