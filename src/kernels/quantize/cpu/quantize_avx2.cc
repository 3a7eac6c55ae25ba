// SPDX-License-Identifier: MIT
#include "kernels/lanes/cpu/lanes_avx2.h"

#include "kernels/quantize/cpu/quantize_lanes.h"

namespace deepinfer {
const QuantizeKernels& quantize_kernels_avx2() { return kQuantizeKernels; }
}  // namespace deepinfer
