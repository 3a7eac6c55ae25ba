// SPDX-License-Identifier: MIT
#include "kernels/lanes/cpu/lanes_avx512.h"

#include "kernels/hyper_connection/cpu/hyper_connection_lanes.h"

namespace deepinfer {
const StreamKernels& hyper_connection_kernels_avx512() { return kStreamKernels; }
}  // namespace deepinfer
