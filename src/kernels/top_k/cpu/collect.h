// SPDX-License-Identifier: MIT
// Inner loops of the selections, one set per instruction level. Plain pointers only.
#pragma once

#include <cstdint>

namespace deepinfer {

struct CollectKernels {
  // Indices of scores that are not below the threshold (NaN is not), ascending, from base on; returns how many. `out`
  // has room for size + 16.
  int64_t (*collect)(const float* scores, int64_t size, float threshold, uint32_t base, uint32_t* out);
  // The highest of each run of eight scores; size is a multiple of eight. As std::max from left to right: a NaN counts
  // for nothing.
  void (*highest_of_8)(const float* scores, int64_t size, float* out);
};

const CollectKernels& collect_kernels_avx2();
const CollectKernels& collect_kernels_avx512();

}  // namespace deepinfer
