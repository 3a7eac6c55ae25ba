// SPDX-License-Identifier: MIT
#include "kernels/lanes/cpu/lanes_avx512.h"

#include "kernels/rope/cpu/rope_lanes.h"

namespace deepinfer {
const RopeKernels& rope_kernels_avx512() { return kRopeKernels; }
}  // namespace deepinfer
