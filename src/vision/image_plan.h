// SPDX-License-Identifier: MIT
// From the size of an image to the size of its canvas, its grid and the number of tokens its span takes in a prompt.
// Double precision, one pass, as the published reference (dspark-vision.md 3.2). Pure arithmetic; any thread.
#pragma once

#include <cstdint>
#include <optional>

namespace deepinfer {

struct ImagePlanConfig {
  int64_t patch_size = 14;             // pixels along a side of a patch
  int64_t downsample_ratio = 3;        // patches along a side of an image row's cell
  int64_t max_image_tokens = 1024;     // of the whole span, delimiters included; at least 8
  int64_t min_pixels = 295936;         // smaller images are enlarged
  std::optional<double> max_wh_ratio;  // widths beyond ratio * height are clamped; absent in the released model
};

struct ImagePlan {
  int64_t canvas_width = 0, canvas_height = 0;  // pixels, multiples of patch_size
  int64_t grid_rows = 0, grid_columns = 0;      // image rows (cells), the last ones possibly ragged
  int64_t num_tokens = 0;                       // grid_rows * (grid_columns + 1) + 2
  bool stretches = false;  // plain resize to the canvas instead of fit and pad: beyond max_wh_ratio
  int64_t patch_rows(int64_t patch_size) const { return canvas_height / patch_size; }
  int64_t patch_columns(int64_t patch_size) const { return canvas_width / patch_size; }
  bool operator==(const ImagePlan&) const = default;
};

// width, height >= 1.
ImagePlan plan_image(int64_t width, int64_t height, const ImagePlanConfig& config);

}  // namespace deepinfer
