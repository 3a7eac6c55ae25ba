// SPDX-License-Identifier: MIT
// Inner loops of RMSNorm, one set per instruction level. Plain pointers only.
#pragma once

#include <cstdint>

namespace deepinfer {

struct NormKernels {
  float (*sum_squares)(const uint16_t* x, int64_t size);
  void (*scale)(const uint16_t* x, const uint16_t* weight, float inverse, int64_t size, uint16_t* out);  // out may be x
};

const NormKernels& norm_kernels_avx2();
const NormKernels& norm_kernels_avx512();

}  // namespace deepinfer
