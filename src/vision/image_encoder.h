// SPDX-License-Identifier: MIT
// The vision tower: canvases to image rows of the language model's width. Patches, a bidirectional transformer with
// two-axis rotary positions, and the projector (dspark-vision.md 3.3-3.5; rounding points of model.md 9.10). Images
// never see each other, so a row's bits depend on its own canvas alone, whatever else is in the call and however many
// threads run it. On a device the weights and the context's scratch lie in its memory; pixels go there and rows come
// back, everything between stays. Thread: one caller at a time per execution context.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "tensor/bfloat16.h"
#include "tensor/buffer.h"
#include "tensor/packed_matrix.h"
#include "vision/canvas.h"
#include "vision/image_plan.h"
#include "vision/rgb_image.h"
#include "vision/vision_kernels.h"

namespace deepinfer {

struct ImageEncoderConfig {
  ImagePlanConfig plan;
  int64_t num_layers = 32;
  int64_t hidden = 1024;   // width of the tower
  int64_t num_heads = 16;  // hidden / num_heads must be a multiple of 4 (two axes of rotated pairs)
  int64_t inner = 2816;    // width of gate and of up
  double rope_theta = 10000;
  int64_t model_hidden = 5120;  // width of the language model = of the image rows
};

// Borrowed views of the checkpoint's tensors, bf16 as stored, in the memory of the target; the owner keeps them alive
// as long as the encoder.
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
  Bf16Vector norm;             // [hidden]
  Bf16Matrix aligner_w1;       // [model_hidden, hidden downsample_ratio^2], columns: channel, ky, kx
  Bf16Vector aligner_w1_bias;  // [model_hidden]
  Bf16Matrix aligner_w2;       // [model_hidden, model_hidden]
  Bf16Vector aligner_w2_bias;  // [model_hidden]
};

// Each shape against the config: "vision: layer 3 wqkv is [96, 64], expected [192, 64]".
Status check(const ImageEncoderConfig& config, const ImageEncoderWeights& weights);

struct ImageRows {
  int64_t grid_rows = 0, grid_columns = 0;
  Buffer<bf16> rows;  // [grid_rows * grid_columns, model_hidden], reading order
  ImageDigest digest{};
};

// Sees the activations on the way: "patch_embed", then "attn" and "block" per layer, "vit_out" (all images of a pass,
// one under the other), "aligner_out" (per image). Of a device it is shown copies: for tests.
using ImageEncoderTap = std::function<void(std::string_view name, View<const bf16, dim::rows, dim::hidden> rows)>;

class ImageEncoder {
 public:
  // Errors: invalid_argument from check(), unimplemented where an op has no row for the target.
  static Result<ImageEncoder> create(const ImageEncoderConfig& config, ImageEncoderWeights weights,
                                     const Target& target);

  // One result per canvas, in order; canvases must have been made with this config's plan. Images share the weights'
  // passes through memory, up to kPatchesPerPass patches at a time. Errors: the device's first fault.
  Result<std::vector<ImageRows>> encode(std::span<const Canvas* const> canvases, const ExecutionContext& context,
                                        const ImageEncoderTap& tap = nullptr) const;
  // Working memory of the largest pass that these canvases take; what a row of linear() takes for itself not counted.
  int64_t scratch_bytes(std::span<const Canvas* const> canvases) const;

  const ImageEncoderConfig& config() const { return config_; }

 private:
  struct Pass;
  ImageEncoder(const ImageEncoderConfig& config, ImageEncoderWeights weights, const VisionKernels& kernels)
      : config_(config), weights_(std::move(weights)), kernels_(kernels) {}

  int64_t num_patches(const Canvas& canvas) const;
  size_t end_of_pass(std::span<const Canvas* const> canvases, size_t begin) const;
  void encode_pass(std::span<const Canvas* const> canvases, const ExecutionContext& context, const ImageEncoderTap& tap,
                   std::vector<ImageRows>& out) const;
  void embed_patches(const Pass& pass, std::span<const Canvas* const> canvases) const;
  void run_tower(const Pass& pass) const;
  void run_attention(const Pass& pass, const ImageEncoderLayerWeights& layer) const;
  void run_mlp(const Pass& pass, const ImageEncoderLayerWeights& layer) const;
  ImageRows project(const Pass& pass, const Canvas& canvas, const Range& patches) const;

  ImageEncoderConfig config_;
  ImageEncoderWeights weights_;
  VisionKernels kernels_;
};

inline constexpr int64_t kPatchesPerPass = 16384;  // bounds the activations: about 0.4 GB at the released widths

// Decoded image to rows in one call.
Result<ImageRows> encode_image(const RgbImage& image, const ImageEncoder& encoder, const ExecutionContext& context);

}  // namespace deepinfer
