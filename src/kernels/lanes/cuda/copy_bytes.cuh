// SPDX-License-Identifier: MIT
// A block copies one row of bytes, four at a time where both sides allow it.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace deepinfer {

__device__ inline void copy_bytes(uint8_t* to, const uint8_t* from, int64_t bytes) {
  const bool is_aligned = (reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from)) % 4 == 0;
  const int64_t words = is_aligned ? bytes / 4 : 0;
  for (int64_t i = threadIdx.x; i < words; i += blockDim.x)
    reinterpret_cast<uint32_t*>(to)[i] = reinterpret_cast<const uint32_t*>(from)[i];
  for (int64_t i = 4 * words + threadIdx.x; i < bytes; i += blockDim.x) to[i] = from[i];
}

}  // namespace deepinfer
