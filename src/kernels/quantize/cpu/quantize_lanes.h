// SPDX-License-Identifier: MIT
// Bodies of QuantizeKernels over V16 lanes; the including file has chosen the lanes.
#pragma once

#include "kernels/quantize/cpu/quantize_kernels.h"

namespace deepinfer {
namespace {

float largest_magnitude(const uint16_t* x, int64_t size) {
  V16 most = magnitude(load_bf16(x));
  if (size == 32) most = max(most, magnitude(load_bf16(x + 16)));
  return largest(most);
}

void encode_e4m3(const uint16_t* x, float scale, uint8_t* codes) {
  for (int i = 0; i < 32; i += 16)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(codes + i),
                     e4m3_codes(round_e4m3(div(load_bf16(x + i), set16(scale)))));
}

void encode_e2m1(const uint16_t* x, float scale, int64_t size, uint8_t* codes) {
  for (int64_t i = 0; i < size; i += 16) {
    const __m128i bytes = e2m1_codes(div(load_bf16(x + i), set16(scale)));
    const __m128i pairs = _mm_and_si128(_mm_or_si128(bytes, _mm_srli_epi16(bytes, 4)), _mm_set1_epi16(0xFF));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(codes + i / 2), _mm_packus_epi16(pairs, pairs));
  }
}

void decode_e4m3(const uint8_t* codes, float scale, uint16_t* out) {
  const V16Pair values = load_e4m3(codes);
  const V16 bias = set16(256.f), factor = set16(scale);
  store_bf16(out, mul(mul(values.first, bias), factor));
  store_bf16(out + 16, mul(mul(values.second, bias), factor));
}

void decode_e2m1(const uint8_t* codes, float first_scale, float second_scale, uint16_t* out) {
  const V16Pair values = load_e2m1(codes, 1.f);
  store_bf16(out, mul(values.first, set16(first_scale)));
  store_bf16(out + 16, mul(values.second, set16(second_scale)));
}

constexpr QuantizeKernels kQuantizeKernels = {largest_magnitude, encode_e4m3, encode_e2m1, decode_e4m3, decode_e2m1};

}  // namespace
}  // namespace deepinfer
