// SPDX-License-Identifier: MIT
#include "kernels/lanes/cpu/lanes_avx2.h"

#include "kernels/norm/cpu/norm_lanes.h"

namespace deepinfer {
const NormKernels& norm_kernels_avx2() { return kNormKernels; }
}  // namespace deepinfer
