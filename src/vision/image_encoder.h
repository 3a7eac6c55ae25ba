// SPDX-License-Identifier: MIT
// The vision tower: canvases to image rows of the language model's width. Patches, a bidirectional transformer with two-axis
// rotary positions, and the projector (dspark-vision.md 3.3-3.5; rounding points of model.md 9.10). Images never see each
// other, so a row's bits depend on its own canvas alone, whatever else is in the call and however many threads run it.
// Thread: one caller at a time per thread pool.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/thread_pool.h"
#include "tensor/bfloat16.h"
#include "tensor/buffer.h"
#include "tensor/packed_matrix.h"
#include "vision/canvas.h"
#include "vision/image_plan.h"
#include "vision/rgb_image.h"

namespace deepinfer {

struct ImageEncoderConfig {
  ImagePlanConfig plan;
  int64_t num_layers = 32;
  int64_t hidden = 1024;        // width of the tower
  int64_t num_heads = 16;       // hidden / num_heads must be a multiple of 4 (two axes of rotated pairs)
  int64_t inner = 2816;         // width of gate and of up
  double rope_theta = 10000;
  int64_t model_hidden = 5120;  // width of the language model = of the image rows
};

// Borrowed views of the checkpoint's tensors, bf16 as stored; the owner keeps them alive during the call.
struct ImageEncoderLayerWeights {
  Bf16Vector norm1, norm2;  // [hidden]
  Bf16Matrix wqkv;          // [3 hidden, hidden], rows: q, k, v
  Bf16Vector wqkv_bias;     // [3 hidden]
  Bf16Matrix wo;            // [hidden, hidden]
  Bf16Vector wo_bias;       // [hidden]
  Bf16Matrix w1;            // [2 inner, hidden], rows: gate, up; no bias
  Bf16Matrix w2;            // [hidden, inner]; no bias
};

struct ImageEncoderWeights {
  Bf16Matrix patch_embed;       // [hidden, 3 patch_size^2], columns: channel, y, x
  Bf16Vector patch_embed_bias;  // [hidden]
  std::vector<ImageEncoderLayerWeights> layers;
  Bf16Vector norm;              // [hidden]
  Bf16Matrix aligner_w1;        // [model_hidden, hidden downsample_ratio^2], columns: channel, ky, kx
  Bf16Vector aligner_w1_bias;   // [model_hidden]
  Bf16Matrix aligner_w2;        // [model_hidden, model_hidden]
  Bf16Vector aligner_w2_bias;   // [model_hidden]
};

// Each view's shape against the config: "vision: layer 3 wqkv: out is 96, expected 192".
Status check(const ImageEncoderConfig& config, const ImageEncoderWeights& weights);

struct ImageRows {
  int64_t grid_rows = 0, grid_columns = 0;
  Buffer<bf16> rows;  // [grid_rows * grid_columns, model_hidden], reading order
  ImageDigest digest{};
};

// Several canvases in one call share the weights' passes through memory. Errors: invalid_argument from check().
Result<std::vector<ImageRows>> encode_images(std::span<const Canvas* const> canvases, const ImageEncoderConfig& config,
                                             const ImageEncoderWeights& weights, ThreadPool& pool);

// Decoded image to rows in one call: make_canvas, then encode_images of one.
Result<ImageRows> encode_image(const RgbImage& image, const ImageEncoderConfig& config, const ImageEncoderWeights& weights,
                               ThreadPool& pool);

}  // namespace deepinfer
