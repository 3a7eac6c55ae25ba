// SPDX-License-Identifier: MIT
// Eight neighbouring bf16 that a thread loads and stores as one.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "tensor/bfloat16.h"

namespace deepinfer {

struct Eight {
  alignas(16) bf16 values[8];
};
__device__ inline Eight load_eight(const bf16* from) {
  Eight eight;
  *reinterpret_cast<uint4*>(eight.values) = *reinterpret_cast<const uint4*>(from);
  return eight;
}
__device__ inline void store_eight(bf16* to, const Eight& eight) {
  *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(eight.values);
}

// As to_bf16 rounds what arithmetic on the device gives, with a quarter of the instructions.
__device__ inline Eight rounded(const float (&x)[8]) {
  Eight y;
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(x[i], x[i + 1]);
    *reinterpret_cast<__nv_bfloat162*>(y.values + i) = pair;
  }
  return y;
}

// weight (x inverse), rounded once.
__device__ inline Eight normed(const Eight& x, const Eight& weight, float inverse) {
  float y[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) y[i] = to_float(weight.values[i]) * (to_float(x.values[i]) * inverse);
  return rounded(y);
}

}  // namespace deepinfer
