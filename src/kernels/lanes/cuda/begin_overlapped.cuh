// SPDX-License-Identifier: MIT
// What small kernels that may begin while the kernel before still runs have in common (overlapped_launch.cuh).
#pragma once

#include "kernels/lanes/cuda/overlapped_launch.cuh"

namespace deepinfer {

// First thing in a kernel that has nothing to fetch before the others' results.
__device__ inline void begin_overlapped() {
  let_kernels_behind_begin();
  wait_for_kernels_before();
}

}  // namespace deepinfer
