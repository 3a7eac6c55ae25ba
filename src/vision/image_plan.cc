// SPDX-License-Identifier: MIT
#include "vision/image_plan.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/range.h"

namespace deepinfer {
namespace {

int64_t floor_to_int(double x) { return static_cast<int64_t>(std::floor(x)); }

// Grid and token count of a canvas.
ImagePlan plan_of_canvas(int64_t canvas_width, int64_t canvas_height, const ImagePlanConfig& config) {
  ImagePlan plan;
  plan.canvas_width = canvas_width;
  plan.canvas_height = canvas_height;
  plan.grid_columns = ceil_div(canvas_width / config.patch_size, config.downsample_ratio);
  plan.grid_rows = ceil_div(canvas_height / config.patch_size, config.downsample_ratio);
  plan.num_tokens = plan.grid_rows * (plan.grid_columns + 1) + 2;
  return plan;
}

// The largest canvas of about the image's shape whose span fits the token limit: solves rows * (columns + 1) = limit -
// 2 at the aspect ratio, then rounds down to whole cells. Extreme shapes get one cell across.
ImagePlan shrink_to_token_limit(double width, double height, const ImagePlanConfig& config) {
  const int64_t patch = config.patch_size, cell = patch * config.downsample_ratio, limit = config.max_image_tokens;
  const double aspect = height / width;
  const double columns = std::sqrt(static_cast<double>(limit - 2) / aspect + 0.25) - 0.5;
  const double rows = columns * aspect;
  if (columns < 1) return plan_of_canvas(cell, cell * ((limit - 2) / 2), config);
  if (rows < 1) return plan_of_canvas(cell * (limit - 3), cell, config);
  const double scale = std::min(static_cast<double>(cell) * std::floor(columns) / width,
                                static_cast<double>(cell) * std::floor(rows) / height);
  const double patch_size = static_cast<double>(patch);
  return plan_of_canvas(patch * floor_to_int(width * scale / patch_size),
                        patch * floor_to_int(height * scale / patch_size), config);
}

}  // namespace

ImagePlan plan_image(int64_t width, int64_t height, const ImagePlanConfig& config) {
  CHECK(width >= 1 && height >= 1);
  double w = static_cast<double>(width), h = static_cast<double>(height);
  const bool stretches = config.max_wh_ratio && w >= *config.max_wh_ratio * h;
  if (config.max_wh_ratio) w = std::min(w, std::floor(*config.max_wh_ratio * h));
  if (w * h < static_cast<double>(config.min_pixels)) {
    const double scale = std::sqrt(static_cast<double>(config.min_pixels) / (w * h));
    w = std::trunc(w * scale);
    h = std::trunc(h * scale);
  }
  const double patch = static_cast<double>(config.patch_size);
  ImagePlan plan = plan_of_canvas(config.patch_size * static_cast<int64_t>(std::ceil(w / patch)),
                                  config.patch_size * static_cast<int64_t>(std::ceil(h / patch)), config);
  if (plan.num_tokens > config.max_image_tokens) plan = shrink_to_token_limit(w, h, config);
  plan.stretches = stretches;
  return plan;
}

}  // namespace deepinfer
