// SPDX-License-Identifier: MIT
// The twin of device_cuda.cc in builds without CUDA.
#include "tensor/device.h"

namespace deepinfer {

std::string describe_cuda() {
  return "not in this build (configure with -DDEEPINFER_ACCELERATOR=nvidia on a machine with CUDA 13)";
}

Result<std::unique_ptr<Device>> open_cuda_device(const CudaOptions&) { return unavailable("cuda: " + describe_cuda()); }

}  // namespace deepinfer
