// SPDX-License-Identifier: MIT
// Bodies of EngramKernels over V16 lanes; the including file has chosen the lanes.
#pragma once

#include "kernels/engram_gate/cpu/engram_gate_kernels.h"

namespace deepinfer {
namespace {

V16 load_up_to_16(const uint16_t* p, int64_t left) { return left >= 16 ? load_bf16(p) : load_some_bf16(p, left); }

float sum_squares(const uint16_t* x, int64_t size) {
  V16 acc = zero16();
  for (int64_t k = 0; k < size; k += 16) {
    const V16 a = load_up_to_16(x + k, size - k);
    acc = add_exact_product(acc, a, a);
  }
  return fold(acc);
}

float dot(const uint16_t* x, const uint16_t* q_weight, const uint16_t* k_weight, const uint16_t* key, int64_t size) {
  V16 acc = zero16();
  for (int64_t k = 0; k < size; k += 16) {
    const V16 g = mul(load_up_to_16(q_weight + k, size - k), load_up_to_16(k_weight + k, size - k));
    acc = add(acc, mul(mul(load_up_to_16(x + k, size - k), g), load_up_to_16(key + k, size - k)));
  }
  return fold(acc);
}

void inject(uint16_t* x, float gate, const uint16_t* value, int64_t size) {
  const V16 g = set16(gate);
  for (int64_t k = 0; k < size; k += 16) {
    const V16 sum = add(load_up_to_16(x + k, size - k), mul(g, load_up_to_16(value + k, size - k)));
    if (size - k >= 16) store_bf16(x + k, sum);
    else store_some_bf16(x + k, size - k, sum);
  }
}

constexpr EngramKernels kEngramKernels = {sum_squares, dot, inject};

}  // namespace
}  // namespace deepinfer
