// SPDX-License-Identifier: MIT
#include "kernels/lanes/cpu/lanes_avx512.h"

namespace deepinfer {
namespace {
constexpr int kRegisterRows = 12;
}
}  // namespace deepinfer

#include "kernels/vision_attention/cpu/vision_tile_lanes.h"

namespace deepinfer {
void vision_tile_avx512(const VisionTile& tile) { run_vision_tile(tile); }
}  // namespace deepinfer
