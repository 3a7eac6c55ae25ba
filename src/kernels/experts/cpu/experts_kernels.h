// SPDX-License-Identifier: MIT
// Inner loops of the expert ops besides their linears, one set per instruction level. Plain pointers only.
#pragma once

#include <cstdint>

namespace deepinfer {

struct ExpertKernels {
  // gate[i] = bf16( silu(min(gate, limit)) * clamp(up) * weight ); limit 0 = no clamp, weight null = none.
  void (*swiglu)(uint16_t* gate, const uint16_t* up, float limit, const float* weight, int64_t size);
  // out = bf16(sum of the rows in order).
  void (*sum_rows)(const uint16_t* const* rows, int64_t num_rows, int64_t size, uint16_t* out);
};

const ExpertKernels& experts_kernels_avx2();
const ExpertKernels& experts_kernels_avx512();

}  // namespace deepinfer
