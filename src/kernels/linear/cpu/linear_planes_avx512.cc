// SPDX-License-Identifier: MIT
// Bodies of PlaneKernels (linear_planes.h). Every product is exact, so a fused multiply-add rounds as the reference.
#include <type_traits>
#include <utility>

#include "kernels/linear/cpu/plane_panels_avx512.h"

namespace deepinfer {
namespace {

constexpr int64_t kAheadBytes = 4096;  // of weights in planes, fetched: a page, since the machine stops at its end
constexpr int kRowsAtOnce = 8;         // by two registers of outputs: sixteen sums hide the latency, ten loads the rest

// Weights of a step in plane l + p of those that stand together: 32 outputs. The codes of
// the step begin at `codes`; begin() is called once for the planes of a panel from l on.
struct E2m1Block {
  static constexpr int kTogether = 8, kScales = kPlaneOut;
  struct Scale {
    __m512 halves[2];
  };
  [[gnu::always_inline]] static Scale load_scale(const float* scales) {
    return {{_mm512_loadu_ps(scales), _mm512_loadu_ps(scales + 16)}};
  }
  // Codes are looked up by the low four bits of a word. Reading from a later byte on brings its codes there without a
  // shift, and reads up to three bytes behind the line.
  static const uint8_t* begin(const uint8_t* codes, int64_t l) { return codes + l % kTogether / 2; }
  template <bool kOdd>
  [[gnu::always_inline]] static void load(const uint8_t* codes, const Scale& scale, int p, __m512 (&w)[2]) {
    const __m512 table =
        _mm512_setr_ps(0.f, .5f, 1.f, 1.5f, 2.f, 3.f, 4.f, 6.f, -0.f, -.5f, -1.f, -1.5f, -2.f, -3.f, -4.f, -6.f);
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      __m512i words = _mm512_loadu_si512(codes + 64 * half + p / 2);
      if ((p % 2 == 1) != kOdd) words = _mm512_srli_epi32(words, 4);
      w[half] = _mm512_mul_ps(_mm512_permutexvar_ps(words, table), scale.halves[half]);
    }
  }
};
template <bool kLargeScales>
struct E4m3Block {
  static constexpr int kTogether = 4, kScales = 1;
  struct Scale {
    __m512 value;
  };
  // The codes come out times 2^-8; 2^8 times a large scale would overflow.
  [[gnu::always_inline]] static Scale load_scale(const float* scales) {
    return {_mm512_set1_ps(kLargeScales ? *scales : *scales * 256.f)};
  }
  static const uint8_t* begin(const uint8_t* codes, int64_t l) { return codes + l % kTogether * kPlaneOut; }
  template <bool kOdd>
  [[gnu::always_inline]] static void load(const uint8_t* codes, const Scale& scale, int p, __m512 (&w)[2]) {
    const V16Pair values = load_e4m3(codes + p * kPlaneOut);
    const __m512 up = _mm512_set1_ps(256.f);
    w[0] = _mm512_mul_ps(kLargeScales ? _mm512_mul_ps(values.first.v, up) : values.first.v, scale.value);
    w[1] = _mm512_mul_ps(kLargeScales ? _mm512_mul_ps(values.second.v, up) : values.second.v, scale.value);
  }
};
struct Bf16Block {
  static constexpr int kTogether = 2, kScales = 0;
  struct Scale {};
  static Scale load_scale(const float*) { return {}; }
  static const uint8_t* begin(const uint8_t* codes, int64_t) { return codes; }
  template <bool kOdd>
  [[gnu::always_inline]] static void load(const uint8_t* codes, const Scale&, int p, __m512 (&w)[2]) {
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512i two = _mm512_loadu_si512(codes + 64 * half);
      w[half] = _mm512_castsi512_ps((p % 2 == 1) != kOdd ? _mm512_and_si512(two, _mm512_set1_epi32(-0x10000))
                                                         : _mm512_slli_epi32(two, 16));
    }
  }
};

// The codes of a panel from one part on, of which the last block may have to be read elsewhere.
struct PanelCodes {
  const uint8_t *codes, *last;
  const uint8_t* block(int64_t k, int64_t steps) const { return k + 2 < steps ? codes + k * kStepBytes : last; }
};
// A copy of the panel's last block with bytes behind it.
struct LastBlock {
  alignas(64) uint8_t bytes[2 * kStepBytes + 64];
};
template <typename Block>
PanelCodes codes_of(const PlanePanel& panel, int64_t l, int64_t steps, LastBlock& copy) {
  const uint8_t* codes = panel.codes + l / Block::kTogether * panel.part_bytes;
  const uint8_t* last = codes + (steps - 2) * kStepBytes;
  if (!panel.has_bytes_behind) {
    __builtin_memcpy(copy.bytes, last, 2 * kStepBytes);
    last = copy.bytes;
  }
  return {Block::begin(codes, l), Block::begin(last, l)};
}

// Plane l of a panel, unpacked: [column, output].
template <typename Block, bool kOdd>
void unpack_steps(const PanelCodes& from, const float* scales, int64_t steps, float* out) {
  for (int64_t k = 0; k < steps; k += 2, scales += Block::kScales) {
    const uint8_t* codes = from.block(k, steps);
    const typename Block::Scale scale = Block::load_scale(scales);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i, out += kPlaneOut) {
      __m512 w[2];
      Block::template load<kOdd>(codes + i * kStepBytes, scale, 0, w);
      _mm512_storeu_ps(out, w[0]);
      _mm512_storeu_ps(out + 16, w[1]);
    }
  }
}
template <typename Block>
void unpack_plane(const PlanePanel& panel, int64_t l, int64_t steps, float* out) {
  LastBlock last;
  const PanelCodes from = codes_of<Block>(panel, l, steps, last);
  if (l % 2) unpack_steps<Block, true>(from, panel.scales, steps, out);
  else unpack_steps<Block, false>(from, panel.scales, steps, out);
}

// What the next rows are, which are fetched meanwhile: a plane of a row is too short for the machine to guess what
// follows.
struct NextRows {
  const float* const* x;
  int64_t offset;
  template <int kX>
  void fetch(int64_t k, int i) const {  // a line is sixteen columns, so every other of eight steps has a row to fetch
    _mm_prefetch(reinterpret_cast<const char*>(x[(k / 2 + i / 2) % kX] + offset + k), _MM_HINT_T0);
  }
};

// One step of kX rows.
template <int kX>
[[gnu::always_inline]] inline void add_step(const float* const (&xs)[kX], int64_t k, __m512 low, __m512 high,
                                            __m512 (&acc)[kX][2]) {
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m) {
    const __m512 value = _mm512_set1_ps(xs[m][k]);
    acc[m][0] = _mm512_fmadd_ps(value, low, acc[m][0]);
    acc[m][1] = _mm512_fmadd_ps(value, high, acc[m][1]);
  }
}

// A plane of a panel by kX rows; `ahead`: lines of weights to be fetched, one for eight steps. Eight steps at a time:
// with one, the machine never guesses where the loop ends.
template <int kX>
void add_plane(const float* const* x, const NextRows& next, const uint8_t* ahead, int64_t offset, const float* w,
               int64_t steps, bool first, float* sums) {
  __m512 acc[kX][2];
  const float* xs[kX];
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m) {
    xs[m] = x[m] + offset;
    acc[m][0] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(sums + m * kPlaneOut);
    acc[m][1] = first ? _mm512_setzero_ps() : _mm512_loadu_ps(sums + m * kPlaneOut + 16);
  }
  int64_t k = 0;
  for (; k + 8 <= steps; k += 8, ahead += 64) {
    if (kX == kRowsAtOnce) _mm_prefetch(reinterpret_cast<const char*>(ahead), _MM_HINT_T1);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i, w += kPlaneOut) {
      if (kX == kRowsAtOnce && i % 2) next.fetch<kX>(k, i);
      add_step(xs, k + i, _mm512_loadu_ps(w), _mm512_loadu_ps(w + 16), acc);
    }
  }
  for (; k < steps; ++k, w += kPlaneOut) add_step(xs, k, _mm512_loadu_ps(w), _mm512_loadu_ps(w + 16), acc);
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m) {
    _mm512_storeu_ps(sums + m * kPlaneOut, acc[m][0]);
    _mm512_storeu_ps(sums + m * kPlaneOut + 16, acc[m][1]);
  }
}

// Planes [l, l + kP) by all kX rows, straight from the codes: what is unpacked stays in registers. kOdd is for a single
// plane.
template <typename Block, int kP, int kX, bool kOdd>
void add_few(const float* const* x, const PlanePanel& panel, const PlaneShape& shape, int64_t l, float* sums) {
  const int64_t steps = shape.steps(), row_steps = shape.row_steps();
  const bool first = shape.k_begin == 0;
  __m512 acc[kP][kX][2];
  const float* xs[kX];
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m) xs[m] = x[m] + l * row_steps + shape.k_begin / kPlanes;
    // Loops with plain indices: through a function of any kind the sums would live in memory.
#pragma GCC unroll 8
  for (int p = 0; p < kP; ++p)
#pragma GCC unroll 8
    for (int m = 0; m < kX; ++m)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half)
        acc[p][m][half] =
            first ? _mm512_setzero_ps() : _mm512_loadu_ps(sums + ((l + p) * kX + m) * kPlaneOut + 16 * half);
  LastBlock last;
  const PanelCodes from = codes_of<Block>(panel, l, steps, last);
  // As add_plane(): more steps at a time, or the machine never guesses the end.
  int64_t run = 4 * l, left = 0;
  const uint8_t* ahead = nullptr;
  const float* scales = panel.scales;
#pragma GCC unroll 4
  for (int64_t k = 0; k < steps; k += 2, scales += Block::kScales) {
    const uint8_t* codes = from.block(k, steps);
    if (kP == 1) {  // planes one by one pass over the same lines, so each fetches its share of the next panel's
      if (left == 0) {
        ahead = panel.ahead.run(run++, steps);
        left = steps / 8;
      }
      _mm_prefetch(reinterpret_cast<const char*>(ahead), _MM_HINT_T1);
      ahead += 64;
      --left;
    }
    const typename Block::Scale scale = Block::load_scale(scales);
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i, codes += kStepBytes) {
      if (kP > 1)  // into the second cache: the first would have too many lines under way
        for (int line = 0; line < 2; ++line)
          _mm_prefetch(reinterpret_cast<const char*>(codes) + kAheadBytes + 64 * line, _MM_HINT_T1);
#pragma GCC unroll 8
      for (int p = 0; p < kP; ++p) {
        __m512 w[2];
        Block::template load<kOdd>(codes, scale, p, w);
#pragma GCC unroll 8
        for (int m = 0; m < kX; ++m) {
          const __m512 value = _mm512_set1_ps(xs[m][p * row_steps + k + i]);
          acc[p][m][0] = _mm512_fmadd_ps(value, w[0], acc[p][m][0]);
          acc[p][m][1] = _mm512_fmadd_ps(value, w[1], acc[p][m][1]);
        }
      }
    }
  }
#pragma GCC unroll 8
  for (int p = 0; p < kP; ++p)
#pragma GCC unroll 8
    for (int m = 0; m < kX; ++m)
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half)
        _mm512_storeu_ps(sums + ((l + p) * kX + m) * kPlaneOut + 16 * half, acc[p][m][half]);
}

template <typename Block, int kX>
void multiply_few(const float* const* x, const PlanePanel& panel, const PlaneShape& shape, float* sums) {
  // Eight sums at least hide the latency of the multiply-adds, sixteen leave registers to the rest.
  constexpr int kMost = kX == 1   ? 8
                        : kX == 2 ? 4
                        : kX <= 4 ? 2
                                  : 1,
                kP = kMost < Block::kTogether ? kMost : Block::kTogether;
  for (int64_t l = 0; l < kPlanes; l += kP) {
    if (kP == 1 && l % 2) add_few<Block, kP, kX, true>(x, panel, shape, l, sums);
    else add_few<Block, kP, kX, false>(x, panel, shape, l, sums);
  }
}

// sums: [plane, row, output].
template <typename Block>
void multiply(const float* const* x, int64_t num_x, const PlanePanel& panel, const PlaneShape& shape, float* plane,
              float* sums) {
  if constexpr (Block::kScales > 0) {  // bf16 comes here with many rows only
    const auto few = [&]<int... kLess>(std::integer_sequence<int, kLess...>) {
      return ((num_x == kLess + 1 && (multiply_few<Block, kLess + 1>(x, panel, shape, sums), true)) || ...);
    };
    if (few(std::make_integer_sequence<int, kRowsAtOnce>())) return;
  }
  const int64_t steps = shape.steps();
  const bool first = shape.k_begin == 0;
  int64_t call = 0;
  for (int64_t l = 0; l < kPlanes; ++l, sums += num_x * kPlaneOut) {
    unpack_plane<Block>(panel, l, steps, plane);
    const int64_t offset = shape.k_begin / kPlanes + l * shape.row_steps();
    int64_t m = 0;
    const auto rows = [&]<int kX>(std::integral_constant<int, kX>) {
      for (; m + kX <= num_x; m += kX) {
        const bool more = m + 2 * kX <= num_x;
        const NextRows next{more ? x + m + kX : x, offset + (more || l == kPlanes - 1 ? 0 : shape.row_steps())};
        add_plane<kX>(x + m, next, panel.ahead.run(call++, steps), offset, plane, steps, first, sums + m * kPlaneOut);
      }
    };
    rows(std::integral_constant<int, kRowsAtOnce>());
    rows(std::integral_constant<int, 4>());
    rows(std::integral_constant<int, 2>());
    rows(std::integral_constant<int, 1>());
  }
}
void multiply_fp8(const float* const* x, int64_t num_x, const PlanePanel& panel, const PlaneShape& shape, float* plane,
                  float* sums) {
  bool large = false;
  for (int64_t b = 0; b < shape.steps() / 2; ++b) large |= panel.scales[b] >= 0x1p120f;
  if (large) multiply<E4m3Block<true>>(x, num_x, panel, shape, plane, sums);
  else multiply<E4m3Block<false>>(x, num_x, panel, shape, plane, sums);
}
void multiply_fp4(const float* const* x, int64_t num_x, const PlanePanel& panel, const PlaneShape& shape, float* plane,
                  float* sums) {
  multiply<E2m1Block>(x, num_x, panel, shape, plane, sums);
}
void multiply_bf16(const float* const* x, int64_t num_x, const PlanePanel& panel, const PlaneShape& shape, float* plane,
                   float* sums) {
  multiply<Bf16Block>(x, num_x, panel, shape, plane, sums);
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
  static const PlaneKernels kKernels = {spread,   turn_fp8,     turn_fp4,     turn_bf16,     open_fp8,
                                        open_fp4, multiply_fp8, multiply_fp4, multiply_bf16, fold_planes};
  return kKernels;
}

}  // namespace deepinfer
