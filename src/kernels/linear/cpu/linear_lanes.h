// SPDX-License-Identifier: MIT
// Bodies of LinearKernels over V16 lanes; the including file has chosen the lanes. Every product here is exact (bf16, e4m3
// and e2m1 factors with power-of-two scales), so fused multiply-adds give the reference's bits.
#pragma once

#include <cstring>

#include "kernels/lanes/cpu/panel_lanes.h"
#include "kernels/linear/cpu/linear_kernels.h"

namespace deepinfer {
namespace {

inline float e8m0(uint8_t code) {
  const uint32_t bits = code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline int64_t padded(int64_t in) { return (in + 31) / 32 * 32; }

void prepare_row(const uint16_t* x, int64_t in, bool round, float* out) {
  int64_t k = 0;
  for (; k + 32 <= in; k += 32) {
    V16 a = load_bf16(x + k), b = load_bf16(x + k + 16);
    if (round) {
      const float amax = largest(max(magnitude(a), magnitude(b)));
      const float least = (amax < 1e-4f ? 1e-4f : amax) * (1.f / 448.f);
      uint32_t bits;
      std::memcpy(&bits, &least, 4);
      const uint8_t scale = static_cast<uint8_t>((bits >> 23) + ((bits & 0x7FFFFF) != 0));
      const V16 up = set16(e8m0(scale)), down = set16(e8m0(static_cast<uint8_t>(254 - scale)));
      a = mul(round_e4m3(mul(a, down)), up);
      b = mul(round_e4m3(mul(b, down)), up);
    }
    store16(out + k, a);
    store16(out + k + 16, b);
  }
  if (k == in) return;
  const int64_t rest = in - k;  // only without rounding
  store16(out + k, load_some_bf16(x + k, rest < 16 ? rest : 16));
  store16(out + k + 16, rest > 16 ? load_some_bf16(x + k + 16, rest - 16) : zero16());
}

void fold_scales(const float* x, int64_t in, const uint8_t* scales, float* out) {
  for (int64_t k = 0; k < in; k += 32) {
    const V16 scale = set16(e8m0(scales[k / 32])), bias = set16(256.f);
    store16(out + k, mul(mul(load16(x + k), bias), scale));
    store16(out + k + 16, mul(mul(load16(x + k + 16), bias), scale));
  }
}

template <int kRows>
void fp8_rows(const uint8_t* codes, int64_t in, const float* x, float* y) {
  V16 acc[kRows];
#pragma GCC unroll 8
  for (V16& a : acc) a = zero16();
  int64_t k = 0;
  for (; k + 32 <= in; k += 32) {
    const V16 x0 = load16(x + k), x1 = load16(x + k + 16);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V16Pair w = load_e4m3(codes + r * in + k);
      acc[r] = add_exact_product(add_exact_product(acc[r], w.first, x0), w.second, x1);
    }
  }
  for (int r = 0; r < kRows && k < in; ++r) {
    const V16Pair w = load_some_e4m3(codes + r * in + k, in - k);
    acc[r] = add_exact_product(add_exact_product(acc[r], w.first, load16(x + k)), w.second, load16(x + k + 16));
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) y[r] = fold(acc[r]);
}

template <int kRows>
void fp4_rows(const uint8_t* codes, const uint8_t* scales, int64_t in, const float* x, float* y) {
  V16 acc[kRows];
#pragma GCC unroll 8
  for (V16& a : acc) a = zero16();
  for (int64_t k = 0; k < in; k += 32) {
    const V16 x0 = load16(x + k), x1 = load16(x + k + 16);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const V16Pair w = load_e2m1(codes + (r * in + k) / 2, e8m0(scales[(r * in + k) / 32]));
      acc[r] = add_exact_product(add_exact_product(acc[r], w.first, x0), w.second, x1);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) y[r] = fold(acc[r]);
}

template <int kRows>
void bf16_rows(const uint16_t* values, int64_t in, const float* x, float* y) {
  V16 acc[kRows];
#pragma GCC unroll 8
  for (V16& a : acc) a = zero16();
  int64_t k = 0;
  for (; k + 16 <= in; k += 16) {
    const V16 x0 = load16(x + k);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) acc[r] = add_exact_product(acc[r], load_bf16(values + r * in + k), x0);
  }
  for (int r = 0; r < kRows && k < in; ++r) acc[r] = add_exact_product(acc[r], load_some_bf16(values + r * in + k, in - k), load16(x + k));
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) y[r] = fold(acc[r]);
}

void fp8_row(const uint8_t* codes, int64_t in, const float* x, int64_t num_out, float* y) {
  int64_t o = 0;
  for (; o + kGemvRows <= num_out; o += kGemvRows) fp8_rows<kGemvRows>(codes + o * in, in, x, y + o);
  for (; o < num_out; ++o) fp8_rows<1>(codes + o * in, in, x, y + o);
}
void fp4_row(const uint8_t* codes, const uint8_t* scales, int64_t in, const float* x, int64_t num_out, float* y) {
  int64_t o = 0;
  for (; o + kGemvRows <= num_out; o += kGemvRows) fp4_rows<kGemvRows>(codes + o * in / 2, scales + o * in / 32, in, x, y + o);
  for (; o < num_out; ++o) fp4_rows<1>(codes + o * in / 2, scales + o * in / 32, in, x, y + o);
}
void bf16_row(const uint16_t* values, int64_t in, const float* x, int64_t num_out, float* y) {
  int64_t o = 0;
  for (; o + kGemvRows <= num_out; o += kGemvRows) bf16_rows<kGemvRows>(values + o * in, in, x, y + o);
  for (; o < num_out; ++o) bf16_rows<1>(values + o * in, in, x, y + o);
}

void unpack_fp8(const uint8_t* codes, const uint8_t* scales, int64_t in, int64_t num_out, float* out) {
  for (int64_t o = 0; o < num_out; ++o) {
    for (int64_t k = 0; k < in; k += 32) {
      const V16 scale = set16(e8m0(scales[k / 32])), bias = set16(256.f);
      const V16Pair w = k + 32 <= in ? load_e4m3(codes + o * in + k) : load_some_e4m3(codes + o * in + k, in - k);
      store16(out + o * padded(in) + k, mul(mul(w.first, bias), scale));
      store16(out + o * padded(in) + k + 16, mul(mul(w.second, bias), scale));
    }
  }
}
void unpack_fp4(const uint8_t* codes, const uint8_t* scales, int64_t in, int64_t num_out, float* out) {
  for (int64_t k = 0; k < num_out * in; k += 32) {
    const V16Pair w = load_e2m1(codes + k / 2, e8m0(scales[k / 32]));
    store16(out + k, w.first);
    store16(out + k + 16, w.second);
  }
}
void unpack_bf16(const uint16_t* values, int64_t in, int64_t num_out, float* out) {
  for (int64_t o = 0; o < num_out; ++o) prepare_row(values + o * in, in, false, out + o * padded(in));
}

constexpr LinearKernels kLinearKernels = {prepare_row, fold_scales, fp8_row, fp4_row, bf16_row, unpack_fp8, unpack_fp4, unpack_bf16, panel};

}  // namespace
}  // namespace deepinfer
