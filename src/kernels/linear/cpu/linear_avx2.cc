// SPDX-License-Identifier: MIT
#include "kernels/lanes/cpu/lanes_avx2.h"

#include "kernels/linear/cpu/linear_lanes.h"

namespace deepinfer {
const LinearKernels& linear_kernels_avx2() { return kLinearKernels; }
}  // namespace deepinfer
