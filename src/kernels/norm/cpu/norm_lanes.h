// SPDX-License-Identifier: MIT
// Bodies of NormKernels over V16 lanes; the including file has chosen the lanes.
#pragma once

#include "kernels/norm/cpu/norm_kernels.h"

namespace deepinfer {
namespace {

float sum_squares(const uint16_t* x, int64_t size) {
  V16 acc = zero16();
  for (int64_t k = 0; k < size; k += 16) {
    const V16 a = k + 16 <= size ? load_bf16(x + k) : load_some_bf16(x + k, size - k);
    acc = add_exact_product(acc, a, a);
  }
  return fold(acc);
}

void scale(const uint16_t* x, const uint16_t* weight, float inverse, int64_t size, uint16_t* out) {
  const V16 factor = set16(inverse);
  int64_t k = 0;
  for (; k + 16 <= size; k += 16) store_bf16(out + k, mul(load_bf16(weight + k), mul(load_bf16(x + k), factor)));
  if (k < size)
    store_some_bf16(out + k, size - k,
                    mul(load_some_bf16(weight + k, size - k), mul(load_some_bf16(x + k, size - k), factor)));
}

constexpr NormKernels kNormKernels = {sum_squares, scale};

}  // namespace
}  // namespace deepinfer
