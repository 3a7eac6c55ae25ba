// SPDX-License-Identifier: MIT
#include "kernels/lanes/cpu/lanes_avx512.h"

#include "kernels/norm/cpu/norm_lanes.h"

namespace deepinfer {
const NormKernels& norm_kernels_avx512() { return kNormKernels; }
}  // namespace deepinfer
