// SPDX-License-Identifier: MIT
// Inner loop of the rotation, one set per instruction level. Plain pointers only.
#pragma once

#include <cstdint>

namespace deepinfer {

struct RopeKernels {
  // x[i] = bf16(x[i] * cos2[i] + x[i ^ 1] * sin2[i]) over `size` channels (an even number): cos2 repeats each cosine,
  // sin2 holds -sin, +sin of each pair.
  void (*rotate)(uint16_t* x, const float* cos2, const float* sin2, int64_t size);
};

const RopeKernels& rope_kernels_avx2();
const RopeKernels& rope_kernels_avx512();

}  // namespace deepinfer
