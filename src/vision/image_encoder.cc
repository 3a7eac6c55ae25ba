// SPDX-License-Identifier: MIT
#include "vision/image_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/range.h"
#include "vision/patches.h"

namespace deepinfer {
namespace {

constexpr float kNormEpsilon = 1e-6f;

using Activations = View<bf16, dim::rows, dim::hidden>;
template <typename From>
View<const bf16, dim::rows, dim::in> as_input(const From& v) {
  return {v.data, v.size, v.stride};
}
View<bf16, dim::rows, dim::out> as_output(const Activations& v) { return {v.data, v.size, v.stride}; }

// `size` columns of each row, from `begin` on.
View<const bf16, dim::rows, dim::inner> columns(const Activations& v, int64_t begin, int64_t size) {
  return {v.data + begin, {v.size[0], size}, v.stride};
}

Status check_matrix(const std::string& name, const Bf16Matrix& m, int64_t out, int64_t in) {
  if (m.empty()) return invalid_argument("vision: " + name + " is missing");
  if (m.out == out && m.in == in) return {};
  return invalid_argument(fmt::format("vision: {} is [{}, {}], expected [{}, {}]", name, m.out, m.in, out, in));
}

Status check_vector(const std::string& name, const Bf16Vector& v, int64_t size) {
  if (v.empty()) return invalid_argument("vision: " + name + " is missing");
  if (v.size == size) return {};
  return invalid_argument(fmt::format("vision: {} is [{}], expected [{}]", name, v.size, size));
}

Status check_layer(const ImageEncoderConfig& c, const ImageEncoderLayerWeights& w, const std::string& where) {
  TRY(check_vector(where + "norm1", w.norm1, c.hidden));
  TRY(check_vector(where + "norm2", w.norm2, c.hidden));
  TRY(check_matrix(where + "wqkv", w.wqkv, 3 * c.hidden, c.hidden));
  TRY(check_vector(where + "wqkv bias", w.wqkv_bias, 3 * c.hidden));
  TRY(check_matrix(where + "wo", w.wo, c.hidden, c.hidden));
  TRY(check_vector(where + "wo bias", w.wo_bias, c.hidden));
  TRY(check_matrix(where + "w1", w.w1, 2 * c.inner, c.hidden));
  return check_matrix(where + "w2", w.w2, c.hidden, c.inner);
}

Status check_config(const ImageEncoderConfig& c) {
  if (c.plan.patch_size < 1 || c.plan.downsample_ratio < 1 || c.hidden < 1 || c.inner < 1 || c.model_hidden < 1 ||
      c.num_layers < 0)
    return invalid_argument("vision: patch size, downsample ratio and widths must be positive");
  if (c.plan.max_image_tokens < 8)
    return invalid_argument(
        fmt::format("vision: max_image_tokens is {}, expected at least 8", c.plan.max_image_tokens));
  if (c.num_heads < 1 || c.hidden % c.num_heads != 0 || c.hidden / c.num_heads % 4 != 0)
    return invalid_argument(
        fmt::format("vision: {} heads of a width of {}: expected heads of a multiple of 4", c.num_heads, c.hidden));
  return {};
}

}  // namespace

Status check(const ImageEncoderConfig& c, const ImageEncoderWeights& w) {
  TRY(check_config(c));
  const int64_t patch_inputs = 3 * c.plan.patch_size * c.plan.patch_size, ratio = c.plan.downsample_ratio;
  TRY(check_matrix("patch embedding", w.patch_embed, c.hidden, patch_inputs));
  TRY(check_vector("patch embedding bias", w.patch_embed_bias, c.hidden));
  if (static_cast<int64_t>(w.layers.size()) != c.num_layers)
    return invalid_argument(fmt::format("vision: {} layers, expected {}", w.layers.size(), c.num_layers));
  for (size_t i = 0; i < w.layers.size(); ++i) TRY(check_layer(c, w.layers[i], fmt::format("layer {} ", i)));
  TRY(check_vector("norm", w.norm, c.hidden));
  TRY(check_matrix("aligner w1", w.aligner_w1, c.model_hidden, c.hidden * ratio * ratio));
  TRY(check_vector("aligner w1 bias", w.aligner_w1_bias, c.model_hidden));
  TRY(check_matrix("aligner w2", w.aligner_w2, c.model_hidden, c.model_hidden));
  return check_vector("aligner w2 bias", w.aligner_w2_bias, c.model_hidden);
}

Result<ImageEncoder> ImageEncoder::create(const ImageEncoderConfig& config, ImageEncoderWeights weights,
                                          const Target& target) {
  TRY(deepinfer::check(config, weights));
  ASSIGN_OR_RETURN(const VisionKernels kernels, VisionKernels::resolve(target));
  return ImageEncoder(config, std::move(weights), kernels);
}

// Some images on their way through the tower, their patches one under the other.
struct ImageEncoder::Pass {
  const ExecutionContext& context;
  const ImageEncoderTap& tap;
  std::vector<Range> images;  // patch rows of each
  Activations x;              // the residual stream [patches, hidden]
  View<float, dim::tokens, dim::rope_pairs> cos, sin;

  Activations take(int64_t width) const { return take(x.size[0], width); }
  Activations take(int64_t rows, int64_t width) const {
    return {context.scratch->take<bf16>(rows * width), {rows, width}};
  }
  Device& device() const { return context.device ? *context.device : host_device(); }
  void show(std::string_view name, const Activations& rows) const {
    if (!tap) return;
    if (device().is_host()) return tap(name, rows);
    Buffer<bf16> copy(rows.num_elements());
    device().copy(copy.data(), rows.data, copy.size_bytes());
    if (device().wait().ok()) tap(name, Activations{copy.data(), rows.size});
  }
};

void ImageEncoder::run_attention(const Pass& pass, const ImageEncoderLayerWeights& layer) const {
  const int64_t head_dim = config_.hidden / config_.num_heads, num_patches = pass.x.size[0];
  const Activations normed = pass.take(config_.hidden), qkv = pass.take(3 * config_.hidden),
                    mixed = pass.take(config_.hidden);
  kernels_.norm(pass.context, {.x = pass.x, .weight = layer.norm1, .epsilon = kNormEpsilon, .out = normed});
  kernels_.linear(pass.context,
                  {.x = as_input(normed), .weight = layer.wqkv, .bias = layer.wqkv_bias, .out = as_output(qkv)});
  const auto part = [&](int64_t i) {
    return View<bf16, dim::tokens, dim::heads, dim::head_dim>(
        qkv.data + i * config_.hidden, {num_patches, config_.num_heads, head_dim}, {3 * config_.hidden, head_dim, 1});
  };
  kernels_.vision_rope(pass.context, {.x = part(0), .cos = pass.cos, .sin = pass.sin});
  kernels_.vision_rope(pass.context, {.x = part(1), .cos = pass.cos, .sin = pass.sin});
  kernels_.vision_attention(pass.context, {.q = part(0),
                                           .k = part(1),
                                           .v = part(2),
                                           .images = pass.images,
                                           .scale = 1.f / std::sqrt(static_cast<float>(head_dim)),
                                           .out = {mixed.data, {num_patches, config_.num_heads, head_dim}}});
  kernels_.linear(pass.context,
                  {.x = as_input(mixed), .weight = layer.wo, .bias = layer.wo_bias, .out = as_output(normed)});
  pass.show("attn", normed);
  kernels_.residual(pass.context, {.x = pass.x, .y = normed});
}

void ImageEncoder::run_mlp(const Pass& pass, const ImageEncoderLayerWeights& layer) const {
  const Activations normed = pass.take(config_.hidden), gate_up = pass.take(2 * config_.inner),
                    product = pass.take(config_.inner);
  kernels_.norm(pass.context, {.x = pass.x, .weight = layer.norm2, .epsilon = kNormEpsilon, .out = normed});
  kernels_.linear(pass.context, {.x = as_input(normed), .weight = layer.w1, .out = as_output(gate_up)});
  kernels_.gated_silu(pass.context, {.gate = columns(gate_up, 0, config_.inner),
                                     .up = columns(gate_up, config_.inner, config_.inner),
                                     .out = {product.data, product.size}});
  kernels_.linear(pass.context, {.x = as_input(product), .weight = layer.w2, .out = as_output(normed)});
  kernels_.residual(pass.context, {.x = pass.x, .y = normed});
}

void ImageEncoder::run_tower(const Pass& pass) const {
  pass.show("patch_embed", pass.x);
  for (const ImageEncoderLayerWeights& layer : weights_.layers) {
    const Scratch::Frame frame(*pass.context.scratch);
    run_attention(pass, layer);
    run_mlp(pass, layer);
    pass.show("block", pass.x);
  }
  kernels_.norm(pass.context, {.x = pass.x, .weight = weights_.norm, .epsilon = kNormEpsilon, .out = pass.x});
  pass.show("vit_out", pass.x);
}

ImageRows ImageEncoder::project(const Pass& pass, const Canvas& canvas, const Range& patches) const {
  const Scratch::Frame frame(*pass.context.scratch);
  const int64_t patch_size = config_.plan.patch_size, ratio = config_.plan.downsample_ratio;
  const int64_t num_cells = canvas.plan.grid_rows * canvas.plan.grid_columns;
  ImageRows result{canvas.plan.grid_rows, canvas.plan.grid_columns, Buffer<bf16>(num_cells * config_.model_hidden),
                   canvas.digest};
  const Activations cells = pass.take(num_cells, config_.hidden * ratio * ratio),
                    inner = pass.take(num_cells, config_.model_hidden);
  kernels_.vision_cells(pass.context, {.patches = pass.x.rows(patches.begin, patches.end),
                                       .grid_rows = canvas.plan.patch_rows(patch_size),
                                       .grid_columns = canvas.plan.patch_columns(patch_size),
                                       .ratio = ratio,
                                       .out = {cells.data, cells.size}});
  kernels_.linear(
      pass.context,
      {.x = as_input(cells), .weight = weights_.aligner_w1, .bias = weights_.aligner_w1_bias, .out = as_output(inner)});
  kernels_.gelu(pass.context, {.x = {inner.data, inner.size}});
  const Activations rows = pass.device().is_host() ? Activations(result.rows.data(), {num_cells, config_.model_hidden})
                                                   : pass.take(num_cells, config_.model_hidden);
  kernels_.linear(
      pass.context,
      {.x = as_input(inner), .weight = weights_.aligner_w2, .bias = weights_.aligner_w2_bias, .out = as_output(rows)});
  pass.show("aligner_out", rows);
  pass.device().copy(result.rows.data(), rows.data, result.rows.size_bytes());
  return result;
}

namespace {

// Rows that the host makes and ops read: written in place on the host, else beside the device's and brought over.
template <typename T, typename... Dims>
class FromHost {
 public:
  FromHost(Device& device, View<T, Dims...> rows)
      : device_(device), rows_(rows), beside_(device.is_host() ? 0 : rows.num_elements()) {}
  View<T, Dims...> view() { return {device_.is_host() ? rows_.data : beside_.data(), rows_.size}; }
  void bring() { device_.copy(rows_.data, view().data, rows_.num_elements() * static_cast<int64_t>(sizeof(T))); }

 private:
  Device& device_;
  View<T, Dims...> rows_;
  Buffer<T> beside_;
};

}  // namespace

// Angles of every patch, and the patches through the embedding into the residual stream.
void ImageEncoder::embed_patches(const Pass& pass, std::span<const Canvas* const> canvases) const {
  Scratch& scratch = *pass.context.scratch;
  const Scratch::Frame frame(scratch);
  const int64_t patch_size = config_.plan.patch_size, patch_inputs = 3 * patch_size * patch_size,
                num_patches = pass.x.size[0];
  const View<bf16, dim::patches, dim::in> inputs(scratch.take<bf16>(num_patches * patch_inputs),
                                                 {num_patches, patch_inputs});
  FromHost patches(pass.device(), inputs);
  FromHost cos(pass.device(), pass.cos), sin(pass.device(), pass.sin);
  for (size_t i = 0; i < canvases.size(); ++i) {
    const ImagePlan& plan = canvases[i]->plan;
    const auto [begin, end] = pass.images[i];
    write_patches(canvases[i]->image, patch_size, patches.view().rows(begin, end));
    vision_rope_angles(plan.patch_rows(patch_size), plan.patch_columns(patch_size), config_.rope_theta,
                       cos.view().rows(begin, end), sin.view().rows(begin, end));
  }
  patches.bring();
  cos.bring();
  sin.bring();
  kernels_.linear(pass.context, {.x = {inputs.data, inputs.size},
                                 .weight = weights_.patch_embed,
                                 .bias = weights_.patch_embed_bias,
                                 .out = as_output(pass.x)});
}

void ImageEncoder::encode_pass(std::span<const Canvas* const> canvases, const ExecutionContext& context,
                               const ImageEncoderTap& tap, std::vector<ImageRows>& out) const {
  Scratch& scratch = *context.scratch;
  const Scratch::Frame frame(scratch);
  const int64_t pairs = config_.hidden / config_.num_heads / 2;
  std::vector<Range> images;
  for (const Canvas* canvas : canvases) {
    const int64_t begin = images.empty() ? 0 : images.back().end;
    images.push_back({begin, begin + num_patches(*canvas)});
  }
  const int64_t patches = images.back().end;
  const Pass pass{context,
                  tap,
                  images,
                  {scratch.take<bf16>(patches * config_.hidden), {patches, config_.hidden}},
                  {scratch.take<float>(patches * pairs), {patches, pairs}},
                  {scratch.take<float>(patches * pairs), {patches, pairs}}};
  embed_patches(pass, canvases);
  run_tower(pass);
  for (size_t i = 0; i < canvases.size(); ++i) out.push_back(project(pass, *canvases[i], images[i]));
}

int64_t ImageEncoder::num_patches(const Canvas& canvas) const {
  return canvas.plan.patch_rows(config_.plan.patch_size) * canvas.plan.patch_columns(config_.plan.patch_size);
}

// At least one canvas, then as many as fit.
size_t ImageEncoder::end_of_pass(std::span<const Canvas* const> canvases, size_t begin) const {
  size_t end = begin;
  for (int64_t patches = 0; end < canvases.size(); ++end) {
    patches += num_patches(*canvases[end]);
    if (patches > kPatchesPerPass && end > begin) break;
  }
  return end;
}

int64_t ImageEncoder::scratch_bytes(std::span<const Canvas* const> canvases) const {
  const ImageEncoderConfig& c = config_;
  const int64_t bf16_bytes = static_cast<int64_t>(sizeof(bf16)),
                area = c.plan.downsample_ratio * c.plan.downsample_ratio;
  const int64_t per_patch =
      bf16_bytes * (c.hidden + std::max(3 * c.plan.patch_size * c.plan.patch_size, 6 * c.hidden + 3 * c.inner)) +
      static_cast<int64_t>(sizeof(float)) * c.hidden / c.num_heads;
  const int64_t per_cell = bf16_bytes * (c.hidden * area + 2 * c.model_hidden);
  int64_t largest = 0;
  for (size_t begin = 0; begin < canvases.size();) {
    const size_t end = end_of_pass(canvases, begin);
    int64_t patches = 0, cells = 0;
    for (; begin < end; ++begin) {
      patches += num_patches(*canvases[begin]);
      cells = std::max(cells, canvases[begin]->plan.grid_rows * canvases[begin]->plan.grid_columns);
    }
    largest = std::max(largest, patches * per_patch + cells * per_cell);
  }
  return largest;
}

Result<std::vector<ImageRows>> ImageEncoder::encode(std::span<const Canvas* const> canvases,
                                                    const ExecutionContext& context, const ImageEncoderTap& tap) const {
  std::vector<ImageRows> out;
  for (size_t begin = 0; begin < canvases.size();) {
    const size_t end = end_of_pass(canvases, begin);
    encode_pass(canvases.subspan(begin, end - begin), context, tap, out);
    begin = end;
  }
  if (context.device) TRY(context.device->wait());
  return out;
}

Result<ImageRows> encode_image(const RgbImage& image, const ImageEncoder& encoder, const ExecutionContext& context) {
  const Canvas canvas = make_canvas(image, encoder.config().plan);
  const Canvas* const canvases[] = {&canvas};
  ASSIGN_OR_RETURN(auto rows, encoder.encode(canvases, context));
  return std::move(rows[0]);
}

}  // namespace deepinfer
