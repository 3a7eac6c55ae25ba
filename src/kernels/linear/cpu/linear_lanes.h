// SPDX-License-Identifier: MIT
// Bodies of LinearKernels over V16 lanes; the including file has chosen the lanes. Every product here is exact (bf16,
// e4m3 and e2m1 factors with power-of-two scales), so fused multiply-adds give the reference's bits.
#pragma once

#include <cstring>
#include <type_traits>
#include <utility>

#include "kernels/linear/cpu/linear_kernels.h"
#include "kernels/linear/cpu/panel_sums.h"

namespace deepinfer {
namespace {

inline float e8m0(uint8_t code) {
  const uint32_t bits = code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

// Up to 32 columns, zeros behind the last.
V16Pair prepare_block(const uint16_t* x, int64_t size, bool round) {
  V16Pair block;
  if (size >= 32) {
    block = {load_bf16(x), load_bf16(x + 16)};
  } else {
    block = {load_some_bf16(x, size < 16 ? size : 16), size > 16 ? load_some_bf16(x + 16, size - 16) : zero16()};
  }
  if (!round) return block;
  const float amax = largest(max(magnitude(block.first), magnitude(block.second)));
  const float least = (amax < 1e-4f ? 1e-4f : amax) * (1.f / 448.f);
  uint32_t bits;
  std::memcpy(&bits, &least, 4);
  const uint8_t scale = static_cast<uint8_t>((bits >> 23) + ((bits & 0x7FFFFF) != 0));
  const V16 up = set16(e8m0(scale)), down = set16(e8m0(static_cast<uint8_t>(254 - scale)));
  return {mul(round_e4m3(mul(block.first, down)), up), mul(round_e4m3(mul(block.second, down)), up)};
}

void prepare(const uint16_t* x, int64_t in, bool round, float* out) {
  for (int64_t k = 0; k < in; k += 32) {
    const V16Pair block = prepare_block(x + k, in - k, round);
    store16(out + k, weave(block.first));
    store16(out + k + 16, weave(block.second));
  }
}

// Woven to plain: e4m3 codes come out of their registers in the order of their columns.
void fold_scales(const float* x, int64_t in, const uint8_t* scales, float* out) {
  for (int64_t k = 0; k < in; k += 32) {
    V16 a = unweave(load16(x + k)), b = unweave(load16(x + k + 16));
    const bool fits = scales[k / 32] < 247;  // 2^8 times the scale does
    if (!fits) {
      a = mul(a, set16(256.f));
      b = mul(b, set16(256.f));
    }
    const V16 scale = set16(fits ? e8m0(scales[k / 32]) * 256.f : e8m0(scales[k / 32]));
    store16(out + k, mul(a, scale));
    store16(out + k + 16, mul(b, scale));
  }
}

void fetch(const void* p) { _mm_prefetch(reinterpret_cast<const char*>(p), _MM_HINT_T1); }

// Weights in their packed forms: block b of row r, 32 columns, or what is left of them in the last. ahead() fetches the
// line of kStep blocks from b on, which is walked later. in_order() brings sums into the order of lanes.h.
struct Fp8Source {
  static constexpr int kStep = 2;
  const uint8_t* codes;
  int64_t in;
  void ahead(int r, int64_t b) const { fetch(codes + r * in + 32 * b); }
  V16Pair load(int r, int64_t b) const { return load_e4m3_by_memory(codes + r * in + 32 * b); }
  V16Pair load_last(int r, int64_t b) const { return load_some_e4m3(codes + r * in + 32 * b, in - 32 * b); }
  static V16 in_order(V16 sum) { return sum; }
};
struct Fp4Source {  // `in` is a multiple of 32
  static constexpr int kStep = 4;
  const uint8_t *codes, *scales;
  int64_t in, row_blocks;
  void ahead(int r, int64_t b) const { fetch(codes + 16 * (r * row_blocks + b)); }
  V16Pair load(int r, int64_t b) const {
    return load_scaled_e2m1(codes + 16 * (r * row_blocks + b), scales[r * row_blocks + b]);
  }
  V16Pair load_last(int, int64_t) const { return {zero16(), zero16()}; }
  static V16 in_order(V16 sum) { return unweave(sum); }
};
struct Bf16Source {
  static constexpr int kStep = 1;
  const uint16_t* values;
  int64_t in;
  void ahead(int r, int64_t b) const { fetch(values + r * in + 32 * b); }
  V16Pair load(int r, int64_t b) const { return load_woven_bf16(values + r * in + 32 * b); }
  V16Pair load_last(int r, int64_t b) const {
    const V16Pair last = prepare_block(values + r * in + 32 * b, in - 32 * b, false);
    return {weave(last.first), weave(last.second)};
  }
  static V16 in_order(V16 sum) { return unweave(sum); }
};

template <int kRows>
[[gnu::always_inline]] inline void fold_rows(const V16* sums, float* y) {
  constexpr int kFours = kRows / 4 * 4;
#pragma GCC unroll 4
  for (int r = 0; r < kFours; r += 4) _mm_storeu_ps(y + r, fold4(sums[r], sums[r + 1], sums[r + 2], sums[r + 3]));
#pragma GCC unroll 4
  for (int r = kFours; r < kRows; ++r) y[r] = fold(sums[r]);
}

// Blocks [begin, end) of a walk, of which the first `num_full` have 32 columns. The sums travel from one part to the
// next in memory; a part's activations stay in the first cache while all outputs pass. `ahead` blocks later stands what
// is walked next.
struct WalkPart {
  int64_t begin, end, num_full, ahead;
  bool first, last;
};

// acc[m][r] += the products of block b, kTogether weight rows from r on by kX activation rows. Activations come from
// the first cache with every product, so that the registers are left to the sums.
template <int kRows, int kX, int kTogether>
[[gnu::always_inline]] inline void add_block(V16 (&acc)[kX][kRows], int r, const V16Pair (&w)[kTogether],
                                             const float* const (&xs)[kX], int64_t b) {
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m) {
    const V16 first = load16(xs[m] + 32 * b);
#pragma GCC unroll 2
    for (int i = 0; i < kTogether; ++i) acc[m][r + i] = add_exact_product(acc[m][r + i], w[i].first, first);
  }
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m) {
    const V16 second = load16(xs[m] + 32 * b + 16);
#pragma GCC unroll 2
    for (int i = 0; i < kTogether; ++i) acc[m][r + i] = add_exact_product(acc[m][r + i], w[i].second, second);
  }
}

// kRows weight rows by kX activation rows: each weight is unpacked once for all of them.
template <int kRows, int kX, typename Source>
void walk(const Source& source, const float* const* x, const WalkPart& part, float* sums, float* y, int64_t y_stride) {
  constexpr int kTogether = kRows % 2 == 0 && kX > 2 ? 2 : 1;  // rows that share the load of an activation
  V16 acc[kX][kRows];
  const float* xs[kX];
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m) {
    xs[m] = x[m];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) acc[m][r] = part.first ? zero16() : load16(sums + (m * kRows + r) * 16);
  }
  int64_t b = part.begin;
  for (; b + Source::kStep <= part.num_full; b += Source::kStep) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; r += kTogether) {
#pragma GCC unroll 2
      for (int i = 0; i < kTogether; ++i) source.ahead(r + i, b + part.ahead);
#pragma GCC unroll 4
      for (int g = 0; g < Source::kStep; ++g) {
        V16Pair w[kTogether];
#pragma GCC unroll 2
        for (int i = 0; i < kTogether; ++i) w[i] = source.load(r + i, b + g);
        add_block(acc, r, w, xs, b + g);
      }
    }
  }
  for (; b < part.end; ++b) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V16Pair w[1] = {b < part.num_full ? source.load(r, b) : source.load_last(r, b)};
      add_block(acc, r, w, xs, b);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < kX; ++m) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      if (!part.last) store16(sums + (m * kRows + r) * 16, acc[m][r]);
      else acc[m][r] = Source::in_order(acc[m][r]);
    }
    if (part.last) fold_rows<kRows>(acc[m], y + m * y_stride);
  }
}

// rows(o) gives the weights from output o on.
template <int kX, typename Rows>
void walk_outputs(const Rows& rows, const float* const* x, int64_t num_out, float* y, int64_t y_stride) {
  constexpr int kRows = few_rows(kX);
  const int64_t in = rows(0).in, num_full = in / 32, num_blocks = (in + 31) / 32,
                part_blocks = kX < kFewX / 2 ? num_blocks : kFewValues / kX / 128 * 4;
  alignas(64) float sums[kX * kFewOut * 16];  // of which what one part leaves to the next is set
  for (int64_t begin = 0; begin < num_blocks; begin += part_blocks) {
    const bool first = begin == 0, last = begin + part_blocks >= num_blocks;
    // Next come the next rows; of a part of the columns the next part, after the last those of the outputs after these.
    const int64_t ahead = first && last ? kRows * num_full : last ? num_out * num_full - begin : part_blocks;
    const WalkPart part{begin,
                        last ? num_blocks : begin + part_blocks,
                        begin + part_blocks < num_full ? begin + part_blocks : num_full,
                        ahead,
                        first,
                        last};
    int64_t o = 0;
    for (; o + kRows <= num_out; o += kRows) walk<kRows, kX>(rows(o), x, part, sums + o * kX * 16, y + o, y_stride);
    for (; o < num_out; ++o) walk<1, kX>(rows(o), x, part, sums + o * kX * 16, y + o, y_stride);
  }
}

template <typename Rows>
void walk_few(const Rows& rows, const FewRows& x, int64_t num_out, float* y, int64_t y_stride) {
  const auto part = [&]<int kX>(int64_t m, std::integral_constant<int, kX>) {
    walk_outputs<kX>(rows, x.rows + m, num_out, y + m * y_stride, y_stride);
  };
  int64_t m = 0;
  for (; m + kFewX < x.size; m += kFewX) part(m, std::integral_constant<int, kFewX>());
  const auto rest = [&]<int... kSizes>(std::integer_sequence<int, kSizes...>) {
    static_cast<void>(
        ((x.size - m == kSizes + 1 && (part(m, std::integral_constant<int, kSizes + 1>()), true)) || ...));
  };
  rest(std::make_integer_sequence<int, kFewX>());
}

void fp8_rows(const uint8_t* codes, int64_t in, const FewRows& x, int64_t num_out, float* y, int64_t y_stride) {
  walk_few([=](int64_t o) { return Fp8Source{codes + o * in, in}; }, x, num_out, y, y_stride);
}
void fp4_rows(const uint8_t* codes, const uint8_t* scales, int64_t in, const FewRows& x, int64_t num_out, float* y,
              int64_t y_stride) {
  walk_few(
      [=](int64_t o) {
        return Fp4Source{codes + o * in / 2, scales + o * in / 32, in, in / 32};
      },
      x, num_out, y, y_stride);
}
void bf16_rows(const uint16_t* values, int64_t in, const FewRows& x, int64_t num_out, float* y, int64_t y_stride) {
  walk_few([=](int64_t o) { return Bf16Source{values + o * in, in}; }, x, num_out, y, y_stride);
}

void unpack_fp8(const uint8_t* codes, const uint8_t* scales, int64_t in, const PanelShape& shape, float* out) {
  const int64_t end = shape.k_begin + shape.k_size;
  for (int64_t o = 0; o < shape.num_out; ++o) {
    for (int64_t k = shape.k_begin; k < end; k += 32, out += 32) {
      const V16 scale = set16(e8m0(scales[k / 32])), bias = set16(256.f);
      const V16Pair w =
          k + 32 <= end ? load_e4m3_by_memory(codes + o * in + k) : load_some_e4m3(codes + o * in + k, end - k);
      store16(out, weave(mul(mul(w.first, bias), scale)));
      store16(out + 16, weave(mul(mul(w.second, bias), scale)));
    }
  }
}
void unpack_fp4(const uint8_t* codes, const uint8_t* scales, int64_t in, const PanelShape& shape, float* out) {
  for (int64_t o = 0; o < shape.num_out; ++o) {
    for (int64_t k = o * in + shape.k_begin; k < o * in + shape.k_begin + shape.k_size; k += 32, out += 32) {
      const V16Pair w = load_scaled_e2m1(codes + k / 2, scales[k / 32]);
      store16(out, w.first);
      store16(out + 16, w.second);
    }
  }
}
void unpack_bf16(const uint16_t* values, int64_t in, const PanelShape& shape, float* out) {
  for (int64_t o = 0; o < shape.num_out; ++o)
    prepare(values + o * in + shape.k_begin, shape.k_size, false, out + o * shape.width());
}

struct LaneTerms {
  using Element = float;
  using Value = V16;
  static constexpr int kTerms = 16, kX = kSumsX, kW = kSumsW;
  static V16 load(const float* p) { return load16(p); }
  static V16 add_products(V16 sum, V16 x, V16 w) { return add_exact_product(sum, x, w); }
  static V16 in_order(V16 sum) { return unweave(sum); }
};
void panel(const float* const* x, int64_t num_x, const float* weights, const PanelShape& shape, const PanelSums& sums) {
  multiply_panel<LaneTerms>(x, num_x, weights, shape, sums);
}

void round_to_bf16(const float* y, int64_t size, uint16_t* out) {
  int64_t i = 0;
  for (; i + 16 <= size; i += 16) store_bf16(out + i, load16(y + i));
  if (i < size) store_some_bf16(out + i, size - i, load_some(y + i, size - i));
}

constexpr LinearKernels kLinearKernels = {prepare,    fold_scales, fp8_rows,    fp4_rows, bf16_rows,
                                          unpack_fp8, unpack_fp4,  unpack_bf16, panel,    round_to_bf16};

}  // namespace
}  // namespace deepinfer
