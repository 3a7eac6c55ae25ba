// SPDX-License-Identifier: MIT
// What the launchers of device rows share.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/op.h"

namespace deepinfer {

inline cudaStream_t stream_of(const ExecutionContext& context) {
  return static_cast<cudaStream_t>(context.device->stream());
}

// Blocks of a grid along one axis.
inline unsigned num_blocks(int64_t items, int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

// Dynamic shared memory beyond 48 KB must be asked for, once per kernel; asking again is cheap.
template <typename Function>
void allow_shared_memory(Function* kernel, int64_t bytes) {
  if (bytes > 48 << 10)
    cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                         static_cast<int>(bytes));
}

inline unsigned multiprocessor_count() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return static_cast<unsigned>(count);
}

}  // namespace deepinfer
