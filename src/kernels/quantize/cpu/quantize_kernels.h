// SPDX-License-Identifier: MIT
// Inner loops of the row formats, one set per instruction level, for one scale group at a time. Plain pointers only.
// `size` is 16 or 32.
#pragma once

#include <cstdint>

namespace deepinfer {

struct QuantizeKernels {
  float (*largest_magnitude)(const uint16_t* x, int64_t size);
  void (*encode_e4m3)(const uint16_t* x, float scale, uint8_t* codes);                              // 32 columns
  void (*encode_e2m1)(const uint16_t* x, float scale, int64_t size, uint8_t* codes);                // two codes a byte
  void (*decode_e4m3)(const uint8_t* codes, float scale, uint16_t* out);                            // 32 columns
  void (*decode_e2m1)(const uint8_t* codes, float first_scale, float second_scale, uint16_t* out);  // 2 x 16 columns
};

const QuantizeKernels& quantize_kernels_avx2();
const QuantizeKernels& quantize_kernels_avx512();

}  // namespace deepinfer
