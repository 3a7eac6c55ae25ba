// SPDX-License-Identifier: MIT
#include "kernels/lanes/cpu/lanes_avx512.h"

#include "kernels/indexer/cpu/indexer_lanes.h"

namespace deepinfer {
const IndexerKernels& indexer_kernels_avx512() { return kIndexerKernels; }
}  // namespace deepinfer
