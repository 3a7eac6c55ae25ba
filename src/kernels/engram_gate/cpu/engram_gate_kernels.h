// SPDX-License-Identifier: MIT
// Inner loops of the Engram gate, one set per instruction level. Plain pointers only.
#pragma once

#include <cstdint>

namespace deepinfer {

struct EngramKernels {
  float (*sum_squares)(const uint16_t* x, int64_t size);
  float (*dot)(const uint16_t* x, const uint16_t* q_weight, const uint16_t* k_weight, const uint16_t* key,
               int64_t size);
  void (*inject)(uint16_t* x, float gate, const uint16_t* value, int64_t size);
};

const EngramKernels& engram_gate_kernels_avx2();
const EngramKernels& engram_gate_kernels_avx512();

}  // namespace deepinfer
