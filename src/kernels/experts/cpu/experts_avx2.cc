// SPDX-License-Identifier: MIT
#include "kernels/lanes/cpu/lanes_avx2.h"

#include "kernels/experts/cpu/experts_lanes.h"

namespace deepinfer {
const ExpertKernels& experts_kernels_avx2() { return kExpertKernels; }
}  // namespace deepinfer
