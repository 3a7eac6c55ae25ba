// SPDX-License-Identifier: MIT
// Bodies of PlaneKernels (linear_planes.h). Every product is exact, so a fused multiply-add rounds as the reference.
#include <type_traits>

#include "kernels/lanes/cpu/lanes_avx512.h"
#include "kernels/linear/cpu/linear_planes.h"

namespace deepinfer {
namespace {

constexpr int kRowsAtOnce = 8;  // by two registers of outputs: sixteen sums hide the latency, ten loads the rest

// Two columns of every plane lie side by side: those of one block of 32.
void spread(const float* woven, int64_t begin, int64_t size, int64_t in, float* planes) {
  const int64_t columns = plane_columns(in);
  for (int64_t k = begin; k < begin + size; k += 32) {
    const __m512 first = unweave({_mm512_loadu_ps(woven + k)}).v, last = unweave({_mm512_loadu_ps(woven + k + 16)}).v;
    alignas(64) float pairs[2][16];  // lanes 0, 1, 4, 5, ... and 2, 3, 6, 7, ...
    _mm512_store_ps(pairs[0], _mm512_unpacklo_ps(first, last));
    _mm512_store_ps(pairs[1], _mm512_unpackhi_ps(first, last));
    const int64_t panel = k / columns * columns, rest = in - panel;
    const int64_t steps = PlaneShape{panel, rest < columns ? rest : columns, 0}.steps();
    float* to = planes + panel + (k - panel) / kPlanes;
    for (int l = 0; l < 16; ++l, to += steps) __builtin_memcpy(to, pairs[l / 2 % 2] + l / 4 * 4 + l % 2 * 2, 8);
  }
}

// Sixteen rows of sixteen words -> sixteen columns.
[[gnu::always_inline]] inline void transpose(__m512i (&z)[16]) {
  __m512i pairs[16], fours[16];
#pragma GCC unroll 8
  for (int r = 0; r < 16; r += 2) {
    pairs[r] = _mm512_unpacklo_epi32(z[r], z[r + 1]);
    pairs[r + 1] = _mm512_unpackhi_epi32(z[r], z[r + 1]);
  }
#pragma GCC unroll 4
  for (int r = 0; r < 16; r += 4) {  // quarter q of fours[r + j]: word 4 q + j of rows r to r + 3
    fours[r] = _mm512_unpacklo_epi64(pairs[r], pairs[r + 2]);
    fours[r + 1] = _mm512_unpackhi_epi64(pairs[r], pairs[r + 2]);
    fours[r + 2] = _mm512_unpacklo_epi64(pairs[r + 1], pairs[r + 3]);
    fours[r + 3] = _mm512_unpackhi_epi64(pairs[r + 1], pairs[r + 3]);
  }
#pragma GCC unroll 4
  for (int j = 0; j < 4; ++j) {
    const __m512i low = _mm512_shuffle_i32x4(fours[j], fours[4 + j], 0x44),
                  low_rest = _mm512_shuffle_i32x4(fours[8 + j], fours[12 + j], 0x44),
                  high = _mm512_shuffle_i32x4(fours[j], fours[4 + j], 0xEE),
                  high_rest = _mm512_shuffle_i32x4(fours[8 + j], fours[12 + j], 0xEE);
    z[j] = _mm512_shuffle_i32x4(low, low_rest, 0x88);
    z[4 + j] = _mm512_shuffle_i32x4(low, low_rest, 0xDD);
    z[8 + j] = _mm512_shuffle_i32x4(high, high_rest, 0x88);
    z[12 + j] = _mm512_shuffle_i32x4(high, high_rest, 0xDD);
  }
}

// Word d of sixteen rows, from output `first` on, in z[d]. At most 64 bytes of each row, the rest is zero.
[[gnu::always_inline]] inline void load_columns(const uint8_t* bytes, int64_t row_bytes, int64_t size, int64_t first,
                                                int64_t num_out, __m512i (&z)[16]) {
  const __mmask64 mask = size >= 64 ? ~__mmask64{0} : (__mmask64{1} << size) - 1;
#pragma GCC unroll 16
  for (int r = 0; r < 16; ++r) {
    const int64_t row = first + r < num_out ? first + r : num_out - 1;
    z[r] = _mm512_maskz_loadu_epi8(mask, bytes + row * row_bytes);
  }
  transpose(z);
}

inline __m512 e8m0_floats(__m512i codes) {
  return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_slli_epi32(codes, 23), _mm512_set1_epi32(0x00400000)));
}

// Line [l / 2, k] of the codes: column k of plane l of 32 outputs, then that of plane l + 1.
void turn_fp8(const uint8_t* codes, const uint8_t* scales, int64_t in, const PlaneShape& shape,
              const TurnedPanel& panel) {
  const __m512i bytes = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15)),
                order = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
  const int64_t steps = shape.steps();
  for (int64_t c = 0; c < shape.k_size; c += 64) {
    __m512i upper[16], lower[16];
    load_columns(codes + shape.k_begin + c, in, shape.k_size - c, 0, shape.num_out, upper);
    load_columns(codes + shape.k_begin + c, in, shape.k_size - c, 16, shape.num_out, lower);
    const int64_t num_words = shape.k_size - c > 32 ? 16 : 8;
    for (int64_t d = 0; d < num_words; ++d) {  // four columns
      const __m512i first = _mm512_shuffle_epi8(upper[d], bytes), last = _mm512_shuffle_epi8(lower[d], bytes);
      uint8_t* to = panel.codes + (d % 4 * 2 * steps + c / 16 + d / 4) * 64;
      _mm512_storeu_si512(to, _mm512_permutex2var_epi32(first, order, last));
      _mm512_storeu_si512(to + steps * 64,
                          _mm512_permutex2var_epi32(first, _mm512_add_epi32(order, _mm512_set1_epi32(2)), last));
    }
  }
  for (int64_t b = 0; b < steps / 2; ++b)
    panel.scales[b] = _mm512_cvtss_f32(e8m0_floats(_mm512_set1_epi32(scales[shape.k_begin / 32 + b])));
}

// Line [l / 8, k, half]: columns of eight planes of sixteen outputs. Scales: [block, output].
void turn_fp4(const uint8_t* codes, const uint8_t* scales, int64_t in, const PlaneShape& shape,
              const TurnedPanel& panel) {
  const int64_t steps = shape.steps();
  for (int64_t first = 0; first < kPlaneOut; first += 16) {
    for (int64_t c = 0; c < shape.k_size; c += 128) {
      __m512i z[16];
      load_columns(codes + (shape.k_begin + c) / 2, in / 2, (shape.k_size - c) / 2, first, shape.num_out, z);
      const int64_t num_words = shape.k_size - c < 128 ? (shape.k_size - c) / 8 : 16;
      for (int64_t d = 0; d < num_words; ++d)
        _mm512_storeu_si512(panel.codes + ((d % 2 * steps + c / 16 + d / 2) * 2 + first / 16) * 64, z[d]);
    }
  }
  for (int64_t b = 0; b < steps / 2; ++b) {
    alignas(64) uint32_t codes_of_scales[kPlaneOut];
    for (int64_t o = 0; o < kPlaneOut; ++o)
      codes_of_scales[o] = scales[(o < shape.num_out ? o : shape.num_out - 1) * (in / 32) + shape.k_begin / 32 + b];
    _mm512_storeu_ps(panel.scales + b * kPlaneOut, e8m0_floats(_mm512_load_si512(codes_of_scales)));
    _mm512_storeu_ps(panel.scales + b * kPlaneOut + 16, e8m0_floats(_mm512_load_si512(codes_of_scales + 16)));
  }
}

// Line [l / 2, k, half]: columns of two planes of sixteen outputs.
void turn_bf16(const uint16_t* values, int64_t in, const PlaneShape& shape, const TurnedPanel& panel) {
  const auto* bytes = reinterpret_cast<const uint8_t*>(values + shape.k_begin);
  const int64_t steps = shape.steps();
  for (int64_t first = 0; first < kPlaneOut; first += 16) {
    for (int64_t c = 0; c < shape.k_size; c += 32) {
      __m512i z[16];
      load_columns(bytes + 2 * c, 2 * in, 2 * (shape.k_size - c), first, shape.num_out, z);
#pragma GCC unroll 16
      for (int d = 0; d < 16; ++d)
        _mm512_storeu_si512(panel.codes + ((d % 8 * steps + c / 16 + d / 8) * 2 + first / 16) * 64, z[d]);
    }
  }
}

// Plane l of turned weights, unpacked: [column, output].
template <bool kLargeScales>
void unpack_fp8_plane(const TurnedPanel& panel, int64_t l, int64_t steps) {
  const uint8_t* codes = panel.codes + (l / 2 * steps * 2 + l % 2) * 32;
  float* out = panel.plane;
  for (int64_t k = 0; k < steps; ++k, codes += 64, out += kPlaneOut) {
    V16Pair w = load_e4m3_by_memory(codes);
    // The codes come out times 2^-8; 2^8 times a large scale would overflow.
    const V16 scale = set16(kLargeScales ? panel.scales[k / 2] : panel.scales[k / 2] * 256.f);
    if (kLargeScales) w = {mul(w.first, set16(256.f)), mul(w.second, set16(256.f))};
    store16(out, mul(w.first, scale));
    store16(out + 16, mul(w.second, scale));
  }
}
void unpack_fp4_plane(const TurnedPanel& panel, int64_t l, int64_t steps) {
  const __m512 table =
      _mm512_setr_ps(0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f, -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f);
  const __m512i shift = _mm512_set1_epi32(static_cast<int32_t>(l % 8 * 4));
  const uint8_t* codes = panel.codes + l / 8 * steps * 128;
  float* out = panel.plane;
  for (int64_t k = 0; k < steps; ++k, codes += 128, out += kPlaneOut) {
    const float* scale = panel.scales + k / 2 * kPlaneOut;
    for (int half = 0; half < 2; ++half)
      _mm512_storeu_ps(
          out + 16 * half,
          _mm512_mul_ps(_mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_loadu_si512(codes + 64 * half), shift), table),
                        _mm512_loadu_ps(scale + 16 * half)));
  }
}
void unpack_bf16_plane(const TurnedPanel& panel, int64_t l, int64_t steps) {
  const uint8_t* codes = panel.codes + l / 2 * steps * 128;
  const __m512i shift = _mm512_set1_epi32(l % 2 == 0 ? 16 : 0), upper = _mm512_set1_epi32(-0x10000);
  for (int64_t i = 0; i < 2 * steps; ++i) {
    const __m512i two = _mm512_loadu_si512(codes + 64 * i);
    _mm512_storeu_ps(panel.plane + 16 * i, _mm512_castsi512_ps(_mm512_and_si512(_mm512_sllv_epi32(two, shift), upper)));
  }
}

// One plane of kX rows. The rows after them are fetched meanwhile: a plane of a row is too short for the machine to
// guess what follows.
template <int kX>
void add_plane(const float* const* x, int64_t num_x, int64_t offset, const float* w, int64_t steps, bool first,
               float* sums) {
  __m512 acc[kX][2];
  const float* xs[kX];
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m) {
    xs[m] = x[m] + offset;
    acc[m][0] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(sums + m * kPlaneOut);
    acc[m][1] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(sums + m * kPlaneOut + 16);
  }
  for (int64_t k = 0; k < steps; ++k, w += kPlaneOut) {
    const __m512 low = _mm512_loadu_ps(w), high = _mm512_loadu_ps(w + 16);
    if (const int64_t next = kX + k % 16; k % 16 < kX && next < num_x)  // a line is sixteen columns
      _mm_prefetch(reinterpret_cast<const char*>(x[next] + offset + k), _MM_HINT_T0);
#pragma GCC unroll 8
    for (int m = 0; m < kX; ++m) {
      const __m512 value = _mm512_set1_ps(xs[m][k]);
      acc[m][0] = _mm512_fmadd_ps(value, low, acc[m][0]);
      acc[m][1] = _mm512_fmadd_ps(value, high, acc[m][1]);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m) {
    _mm512_storeu_ps(sums + m * kPlaneOut, acc[m][0]);
    _mm512_storeu_ps(sums + m * kPlaneOut + 16, acc[m][1]);
  }
}

// sums: [plane, row, output].
template <typename Unpack>
void multiply(const float* const* x, int64_t num_x, const TurnedPanel& panel, const PlaneShape& shape, float* sums,
              const Unpack& unpack) {
  const int64_t steps = shape.steps();
  const bool first = shape.k_begin == 0;
  for (int64_t l = 0; l < kPlanes; ++l, sums += num_x * kPlaneOut) {
    unpack(panel, l, steps);
    const int64_t offset = shape.k_begin + l * steps;
    int64_t m = 0;
    const auto rows = [&]<int kX>(std::integral_constant<int, kX>) {
      for (; m + kX <= num_x; m += kX)
        add_plane<kX>(x + m, num_x - m, offset, panel.plane, steps, first, sums + m * kPlaneOut);
    };
    rows(std::integral_constant<int, kRowsAtOnce>());
    rows(std::integral_constant<int, 4>());
    rows(std::integral_constant<int, 2>());
    rows(std::integral_constant<int, 1>());
  }
}
void multiply_fp8(const float* const* x, int64_t num_x, const TurnedPanel& panel, const PlaneShape& shape,
                  float* sums) {
  bool large = false;
  for (int64_t b = 0; b < shape.steps() / 2; ++b) large |= panel.scales[b] >= 0x1p120f;
  multiply(x, num_x, panel, shape, sums, large ? unpack_fp8_plane<true> : unpack_fp8_plane<false>);
}
void multiply_fp4(const float* const* x, int64_t num_x, const TurnedPanel& panel, const PlaneShape& shape,
                  float* sums) {
  multiply(x, num_x, panel, shape, sums, unpack_fp4_plane);
}
void multiply_bf16(const float* const* x, int64_t num_x, const TurnedPanel& panel, const PlaneShape& shape,
                   float* sums) {
  multiply(x, num_x, panel, shape, sums, unpack_bf16_plane);
}

void fold_planes(const float* sums, int64_t num_x, float* y) {
  const int64_t plane = num_x * kPlaneOut;
  for (int64_t i = 0; i < plane; i += 16) {
    __m512 lane[kPlanes];
    for (int l = 0; l < kPlanes; ++l) lane[l] = _mm512_loadu_ps(sums + l * plane + i);
    for (int half = kPlanes / 2; half > 0; half /= 2)
      for (int l = 0; l < half; ++l) lane[l] = _mm512_add_ps(lane[l], lane[l + half]);
    _mm512_storeu_ps(y + i, lane[0]);
  }
}

}  // namespace

const PlaneKernels& plane_kernels_avx512() {
  static const PlaneKernels kKernels = {spread,       turn_fp8,     turn_fp4,      turn_bf16,
                                        multiply_fp8, multiply_fp4, multiply_bf16, fold_planes};
  return kKernels;
}

}  // namespace deepinfer
