// SPDX-License-Identifier: MIT
#include "kernels/lanes/cpu/lanes_avx512.h"

#include "kernels/quantize/cpu/quantize_lanes.h"

namespace deepinfer {
const QuantizeKernels& quantize_kernels_avx512() { return kQuantizeKernels; }
}  // namespace deepinfer
