// SPDX-License-Identifier: MIT
#include "kernels/lanes/cpu/lanes_avx512.h"

#include "kernels/sparse_attention/cpu/sparse_attention_lanes.h"

namespace deepinfer {
const AttentionKernels& sparse_attention_kernels_avx512() { return kAttentionKernels; }
}  // namespace deepinfer
