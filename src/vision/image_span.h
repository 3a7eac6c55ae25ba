// SPDX-License-Identifier: MIT
// The tokens an image takes in a prompt: START, then per grid row its IMAGE tokens and a NEWLINE, then END. All carry
// the same token id; the kind tells which embedding a position gets (dspark-vision.md 3.6). Any thread.
#pragma once

#include <cstdint>

#include "base/check.h"

namespace deepinfer {

// Values as the reference writes them.
enum class ImageTokenKind : int8_t { kText = -1, kStart = 0, kImage = 1, kNewline = 2, kEnd = 3 };

struct ImageSpan {
  int64_t grid_rows = 0, grid_columns = 0;

  int64_t num_tokens() const { return grid_rows * (grid_columns + 1) + 2; }
  // offset: position inside the span, in [0, num_tokens()).
  ImageTokenKind kind(int64_t offset) const {
    CHECK(offset >= 0 && offset < num_tokens());
    if (offset == 0) return ImageTokenKind::kStart;
    if (offset == num_tokens() - 1) return ImageTokenKind::kEnd;
    return (offset - 1) % (grid_columns + 1) == grid_columns ? ImageTokenKind::kNewline : ImageTokenKind::kImage;
  }
  // Which of the image's rows (reading order) stands at `offset`; only where kind is kImage.
  int64_t image_row(int64_t offset) const {
    CHECK(kind(offset) == ImageTokenKind::kImage);
    return (offset - 1) / (grid_columns + 1) * grid_columns + (offset - 1) % (grid_columns + 1);
  }
};

}  // namespace deepinfer
