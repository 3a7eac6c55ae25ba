// SPDX-License-Identifier: MIT
// Bodies of ExpertKernels over V16 lanes; the including file has chosen the lanes.
#pragma once

#include "kernels/experts/cpu/experts_kernels.h"

namespace deepinfer {
namespace {

V16 swiglu16(V16 gate, V16 up, float limit, const float* weight) {
  if (limit > 0) {
    gate = min(set16(limit), gate);
    up = min(set16(limit), max(set16(-limit), up));
  }
  V16 hidden = mul(div(gate, add(set16(1.f), exp16(sub(zero16(), gate)))), up);
  return weight ? mul(hidden, set16(*weight)) : hidden;
}

void swiglu(const float* gate, const float* up, float limit, const float* weight, int64_t size, uint16_t* hidden) {
  for (int64_t i = 0; i < size; i += 16) {
    const V16 values = swiglu16(round_bf16(load16(gate + i)), round_bf16(load16(up + i)), limit, weight);
    if (size - i >= 16) store_bf16(hidden + i, values);
    else store_some_bf16(hidden + i, size - i, values);
  }
}

void sum_rows(const uint16_t* const* rows, int64_t num_rows, int64_t size, uint16_t* out) {
  for (int64_t i = 0; i < size; i += 16) {
    const int64_t n = size - i < 16 ? size - i : 16;
    V16 sum = zero16();
    for (int64_t r = 0; r < num_rows; ++r)
      sum = add(sum, n == 16 ? load_bf16(rows[r] + i) : load_some_bf16(rows[r] + i, n));
    if (n == 16) store_bf16(out + i, sum);
    else store_some_bf16(out + i, n, sum);
  }
}

constexpr ExpertKernels kExpertKernels = {swiglu, sum_rows};

}  // namespace
}  // namespace deepinfer
