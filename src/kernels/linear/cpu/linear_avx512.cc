// SPDX-License-Identifier: MIT
#include "kernels/lanes/cpu/lanes_avx512.h"

#include "kernels/linear/cpu/linear_lanes.h"

namespace deepinfer {
const LinearKernels& linear_kernels_avx512() { return kLinearKernels; }
}  // namespace deepinfer
