// SPDX-License-Identifier: MIT
// Bodies of RopeKernels over V16 lanes; the including file has chosen the lanes.
#pragma once

#include "kernels/rope/cpu/rope_kernels.h"

namespace deepinfer {
namespace {

void rotate(uint16_t* x, const float* cos2, const float* sin2, int64_t size) {
  int64_t i = 0;
  for (; i + 16 <= size; i += 16) {
    const V16 a = load_bf16(x + i);
    store_bf16(x + i, add(mul(a, load16(cos2 + i)), mul(swap_pairs(a), load16(sin2 + i))));
  }
  if (i == size) return;
  const int64_t rest = size - i;
  const V16 a = load_some_bf16(x + i, rest);
  store_some_bf16(x + i, rest, add(mul(a, load_some(cos2 + i, rest)), mul(swap_pairs(a), load_some(sin2 + i, rest))));
}

constexpr RopeKernels kRopeKernels = {rotate};

}  // namespace
}  // namespace deepinfer
