// SPDX-License-Identifier: MIT
#include "vision/vision_kernels.h"

namespace deepinfer {

Result<VisionKernels> VisionKernels::resolve(const Target& target) {
  VisionKernels kernels;
  const auto fill = [&](const char* op, auto rows, auto& kernel) -> Status {
    ASSIGN_OR_RETURN(kernel, deepinfer::resolve(op, rows, target));
    return {};
  };
  TRY(fill("linear", linear_rows(), kernels.linear));
  TRY(fill("norm", norm_rows(), kernels.norm));
#define DEEPINFER_VISION_KERNEL_FILL(member, params, rows) TRY(fill(#member, rows(), kernels.member));
  DEEPINFER_VISION_KERNELS(DEEPINFER_VISION_KERNEL_FILL)
#undef DEEPINFER_VISION_KERNEL_FILL
  return kernels;
}

}  // namespace deepinfer
