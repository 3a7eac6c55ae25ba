// SPDX-License-Identifier: MIT
#include "kernels/lanes/cpu/lanes_avx512.h"

#include "kernels/experts/cpu/experts_lanes.h"

namespace deepinfer {
const ExpertKernels& experts_kernels_avx512() { return kExpertKernels; }
}  // namespace deepinfer
