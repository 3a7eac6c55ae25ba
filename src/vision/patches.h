// SPDX-License-Identifier: MIT
// Canvas pixels to the rows the tower starts from. Any thread.
#pragma once

#include <cstdint>

#include "tensor/bfloat16.h"
#include "tensor/view.h"
#include "vision/rgb_image.h"

namespace deepinfer {

// Row-major patches; columns (channel, y, x); value = bf16((v/255 - 0.5) / 0.5). out: [patches, 3 * patch_size^2].
void write_patches(const RgbImage& canvas, int64_t patch_size, View<bf16, dim::patches, dim::in> out);

}  // namespace deepinfer
