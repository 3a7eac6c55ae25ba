// SPDX-License-Identifier: MIT
#include "kernels/lanes/cpu/lanes_avx2.h"

#include "kernels/engram_gate/cpu/engram_gate_lanes.h"

namespace deepinfer {
const EngramKernels& engram_gate_kernels_avx2() { return kEngramKernels; }
}  // namespace deepinfer
