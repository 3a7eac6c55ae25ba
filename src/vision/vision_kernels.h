// SPDX-License-Identifier: MIT
// Every op of the vision tower, resolved once when an encoder is made. Products and norms are those of the forward
// pass.
#pragma once

#include "kernels/linear/linear.h"
#include "kernels/norm/norm.h"
#include "kernels/vision_activation/vision_activation.h"
#include "kernels/vision_attention/vision_attention.h"
#include "kernels/vision_cells/vision_cells.h"
#include "kernels/vision_rope/vision_rope.h"

namespace deepinfer {

// X(member, Params, table function): what the forward pass has not.
#define DEEPINFER_VISION_KERNELS(X)                                 \
  X(vision_rope, VisionRopeParams, vision_rope_rows)                \
  X(vision_attention, VisionAttentionParams, vision_attention_rows) \
  X(gated_silu, GatedSiluParams, gated_silu_rows)                   \
  X(gelu, GeluParams, gelu_rows)                                    \
  X(residual, ResidualParams, residual_rows)                        \
  X(vision_cells, VisionCellsParams, vision_cells_rows)

struct VisionKernels {
  Kernel<LinearParams> linear;
  Kernel<NormParams> norm;
#define DEEPINFER_VISION_KERNEL_MEMBER(member, params, rows) Kernel<params> member;
  DEEPINFER_VISION_KERNELS(DEEPINFER_VISION_KERNEL_MEMBER)
#undef DEEPINFER_VISION_KERNEL_MEMBER

  // Errors: unimplemented, from the first op without a fitting row.
  static Result<VisionKernels> resolve(const Target& target);
};

}  // namespace deepinfer
