// SPDX-License-Identifier: MIT
// Launches that may begin while the kernel before still runs (programmatic dependent launch): such a kernel touches
// nothing that kernels before it write until wait_for_kernels_before(). Weights may be read earlier.
#pragma once

#include "kernels/lanes/cuda/launch.cuh"

namespace deepinfer {

__device__ inline void wait_for_kernels_before() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ inline void let_kernels_behind_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }

struct LaunchShape {
  dim3 grid;
  unsigned threads = 0;
  int64_t shared_bytes = 0;
  unsigned cluster = 1;  // blocks along x
};

template <typename... Params, typename... Arguments>
void launch_overlapped(const ExecutionContext& context, const LaunchShape& shape, void (*kernel)(Params...),
                       const Arguments&... arguments) {
  allow_shared_memory(kernel, shape.shared_bytes);
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[0].val.programmaticStreamSerializationAllowed = 1;
  attributes[1].id = cudaLaunchAttributeClusterDimension;
  attributes[1].val.clusterDim.x = shape.cluster;
  attributes[1].val.clusterDim.y = attributes[1].val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = static_cast<size_t>(shape.shared_bytes);
  config.stream = stream_of(context);
  config.attrs = attributes;
  config.numAttrs = shape.cluster > 1 ? 2 : 1;
  cudaLaunchKernelEx(&config, kernel, arguments...);
}

}  // namespace deepinfer
