// SPDX-License-Identifier: MIT
// Inner loops of the expert ops besides their linears, one set per instruction level. Plain pointers only.
#pragma once

#include <cstdint>

namespace deepinfer {

struct ExpertKernels {
  // hidden[i] = bf16( silu(min(bf16(gate), limit)) * clamp(bf16(up)) * weight ); limit 0 = no clamp, weight null =
  // none. gate and up have room for a multiple of sixteen.
  void (*swiglu)(const float* gate, const float* up, float limit, const float* weight, int64_t size, uint16_t* hidden);
  // out = bf16(sum of the rows in order).
  void (*sum_rows)(const uint16_t* const* rows, int64_t num_rows, int64_t size, uint16_t* out);
};

const ExpertKernels& experts_kernels_avx2();
const ExpertKernels& experts_kernels_avx512();

}  // namespace deepinfer
