// SPDX-License-Identifier: MIT
// The stages of an image: the canvas of a 1080p picture, the attention core and the whole tower at the released
// widths with random weights (two layers measured; the released model has 32). With `--set backend=cuda` whole images
// through all 32 layers: on a GPU, pixels there and rows back, and on the host.
#include <fmt/format.h>

#include <vector>

#include "kernels/bench_cases.h"
#include "vision/image_encoder.h"
#include "vision/test_image.h"

namespace deepinfer {
using namespace bench_ops;

namespace {

Buffer<bf16> small_random_values(int64_t size) {
  Buffer<bf16> values = random_values(size, 5);
  for (bf16& v : values) v = to_bf16(to_float(v) * 0.03f);
  return values;
}

// Weights of the released shapes from one pool of random numbers: speed does not depend on values. On a device each
// tensor has a place of its own, as the model's have.
class RandomWeights {
 public:
  explicit RandomWeights(const ImageEncoderConfig& c, Device& device = host_device())
      : values_(small_random_values(largest(c))), device_(device) {
    weights_.patch_embed = matrix(c.hidden, 3 * c.plan.patch_size * c.plan.patch_size);
    weights_.patch_embed_bias = vector(c.hidden);
    for (int64_t i = 0; i < c.num_layers; ++i)
      weights_.layers.push_back({vector(c.hidden), vector(c.hidden), matrix(3 * c.hidden, c.hidden),
                                 vector(3 * c.hidden), matrix(c.hidden, c.hidden), vector(c.hidden),
                                 matrix(2 * c.inner, c.hidden), matrix(c.hidden, c.inner)});
    weights_.norm = vector(c.hidden);
    weights_.aligner_w1 = matrix(c.model_hidden, c.hidden * 9);
    weights_.aligner_w1_bias = vector(c.model_hidden);
    weights_.aligner_w2 = matrix(c.model_hidden, c.model_hidden);
    weights_.aligner_w2_bias = vector(c.model_hidden);
  }
  const ImageEncoderWeights& get() const { return weights_; }

 private:
  static int64_t largest(const ImageEncoderConfig& c) { return c.model_hidden * c.hidden * 9; }
  const bf16* place(int64_t size) {
    if (device_.is_host()) return values_.data();
    Buffer<bf16>& there = there_.emplace_back(device_.memory(), size);
    device_.copy(there.data(), values_.data(), there.size_bytes());
    return there.data();
  }
  Bf16Matrix matrix(int64_t out, int64_t in) { return {place(out * in), out, in}; }
  Bf16Vector vector(int64_t size) { return {place(size), size}; }
  Buffer<bf16> values_;
  Device& device_;
  std::vector<Buffer<bf16>> there_;
  ImageEncoderWeights weights_;
};

// Multiply-adds of the tower's linears and attention, and of the projector, times two.
double encoder_flops(const ImageEncoderConfig& c, const ImagePlan& plan) {
  const double h = static_cast<double>(c.hidden), inner = static_cast<double>(c.inner),
               d = static_cast<double>(c.model_hidden);
  const double patches =
      static_cast<double>(plan.canvas_width * plan.canvas_height / c.plan.patch_size / c.plan.patch_size);
  const double cells = static_cast<double>(plan.grid_rows * plan.grid_columns);
  const double layer = patches * (4 * h * h + 3 * inner * h) + 2 * patches * patches * h;
  return 2 * (static_cast<double>(c.num_layers) * layer + patches * 588 * h + cells * (9 * h * d + d * d));
}

void bench_attention_core(Machine& machine, double peak, int64_t num_patches, BenchReport& report) {
  const int64_t heads = 16, head_dim = 64;
  const Buffer<bf16> qkv = random_values(num_patches * 3 * heads * head_dim, 3);
  Buffer<bf16> out(num_patches * heads * head_dim);
  const auto part = [&](int64_t i) {
    return View<const bf16, dim::tokens, dim::heads, dim::head_dim>(
        qkv.data() + i * heads * head_dim, {num_patches, heads, head_dim}, {3 * heads * head_dim, head_dim, 1});
  };
  const Range images[] = {{0, num_patches}};
  const VisionAttentionParams p{.q = part(0),
                                .k = part(1),
                                .v = part(2),
                                .images = images,
                                .scale = 0.125f,
                                .out = {out.data(), {num_patches, heads, head_dim}}};
  const auto attention = resolve("vision_attention", vision_attention_rows(), {Backend::kCpu, machine.level}).value();
  const double seconds = median_seconds(3, [&] { attention(machine.context, p); });
  report.add({.name = fmt::format("attention, {} patches", num_patches),
              .value = estimate(p).flops / seconds / 1e9,
              .unit = "GFLOP/s",
              .ceiling = peak / 1e9,
              .ceiling_name = "fp32 fma",
              .note = to_string(machine.level)});
}

void bench_tower(Machine& machine, double peak, const Canvas& canvas, BenchReport& report) {
  ImageEncoderConfig config;
  config.num_layers = 2;
  const RandomWeights weights(config);
  auto encoder = ImageEncoder::create(config, weights.get(), {Backend::kCpu, machine.level});
  CHECK(encoder.ok());
  const Canvas* const canvases[] = {&canvas};
  const double seconds = median_seconds(1, [&] { CHECK(encoder.value().encode(canvases, machine.context).ok()); });
  report.add({.name = fmt::format("tower of 2 layers and projector, {}x{}", canvas.image.width, canvas.image.height),
              .value = encoder_flops(config, canvas.plan) / seconds / 1e9,
              .unit = "GFLOP/s",
              .ceiling = peak / 1e9,
              .ceiling_name = "fp32 fma",
              .note = fmt::format("{:.2f} s, {} tokens", seconds, canvas.plan.num_tokens)});
}

// One image at a time, as a request brings it. `host_ms` is the host's, if it was measured.
double bench_image(const Canvas& canvas, const Target& target, const ExecutionContext& context,
                   const std::string& where, std::optional<double> host_ms, BenchReport& report) {
  const ImageEncoderConfig config;
  const RandomWeights weights(config, context.device ? *context.device : host_device());
  const auto encoder = ImageEncoder::create(config, weights.get(), target);
  CHECK(encoder.ok());
  const Canvas* const canvases[] = {&canvas};
  const double seconds =
      median_seconds(context.device ? 5 : 1, [&] { CHECK(encoder.value().encode(canvases, context).ok()); });
  report.add({.name = fmt::format("image {}x{}, 32 layers, {}", canvas.image.width, canvas.image.height, where),
              .value = 1e3 * seconds,
              .unit = "ms",
              .peer = host_ms ? std::optional<BenchPeer>({"the host", *host_ms}) : std::nullopt,
              .note = fmt::format("{} tokens, {:.1f} TFLOP/s", canvas.plan.num_tokens,
                                  encoder_flops(config, canvas.plan) / seconds / 1e12)});
  return 1e3 * seconds;
}

Status bench_images(Machine& machine, bool is_quick, BenchReport& report) {
  ASSIGN_OR_RETURN(const auto device, open_cuda_device());
  Scratch scratch(device->memory());
  const ExecutionContext there{.scratch = &scratch, .device = device.get()};
  for (const auto& [width, height] : {std::pair<int64_t, int64_t>{448, 336}, {1024, 768}, {1920, 1080}}) {
    const Canvas canvas = make_canvas(make_test_image(width, height, 0), {});
    std::optional<double> host_ms;  // of the smallest alone
    if (width == 448)
      host_ms = bench_image(canvas, {Backend::kCpu, machine.level}, machine.context,
                            fmt::format("the host, {} threads", machine.context.num_threads()), std::nullopt, report);
    bench_image(canvas, {Backend::kCuda}, there, "GPU, exact rows", host_ms, report);
    bench_image(canvas, {.backend = Backend::kCuda, .is_exact = false}, there, "GPU, tensor cores", host_ms, report);
    TRY(device->status());
    if (is_quick) break;
  }
  return {};
}

}  // namespace

Status bench_vision(const BenchOptions& options, BenchReport& report) {
  Machine machine(options);
  const auto backend = options.extra.find("backend");
  if (backend != options.extra.end() && backend->second == "cuda") return bench_images(machine, options.quick, report);
  const double peak = measure_fma_peak(machine.level).flops * machine.context.num_threads();
  const int64_t width = options.quick ? 320 : 1920, height = options.quick ? 180 : 1080;
  const RgbImage image = make_test_image(width, height, 0);
  const double canvas_seconds = median_seconds(3, [&] { make_canvas(image, {}); });
  report.add({.name = fmt::format("canvas of {}x{}", width, height), .value = 1e3 * canvas_seconds, .unit = "ms"});
  bench_attention_core(machine, peak, options.quick ? 300 : 4096, report);
  bench_tower(machine, peak, make_canvas(make_test_image(448, 336, 0), {}), report);
  return {};
}

}  // namespace deepinfer
