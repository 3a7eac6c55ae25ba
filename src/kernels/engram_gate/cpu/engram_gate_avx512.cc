// SPDX-License-Identifier: MIT
#include "kernels/lanes/cpu/lanes_avx512.h"

#include "kernels/engram_gate/cpu/engram_gate_lanes.h"

namespace deepinfer {
const EngramKernels& engram_gate_kernels_avx512() { return kEngramKernels; }
}  // namespace deepinfer
