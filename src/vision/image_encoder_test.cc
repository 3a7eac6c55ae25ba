// SPDX-License-Identifier: MIT
// Expected values: the published reference on golden model A (testdata/model_a), and G1 of dspark-vision.md 4, a double
// precision recomputation without rounding.
#include "vision/image_encoder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>

#include "base/json.h"
#include "tensor/safetensors.h"
#include "tensor/second_heap.h"
#include "vision/test_image.h"

namespace deepinfer {
namespace {

// The vision tensors of model A, from its shards, owned.
class ModelA {
 public:
  ModelA() {
    for (int shard = 1; shard <= 5; ++shard) {
      auto file = SafetensorsFile::read(DEEPINFER_TESTDATA "/model_a/model-0000" + std::to_string(shard) +
                                        "-of-00005.safetensors");
      EXPECT_TRUE(file.ok()) << file.status().message();
      files_.push_back(std::make_unique<SafetensorsFile>(std::move(file).value()));
    }
  }

  Bf16Matrix matrix(const std::string& name) {
    const auto [values, info] = find(name);
    return {values->data(), info->shape[0], info->num_elements() / info->shape[0]};
  }
  Bf16Vector vector(const std::string& name) {
    const auto [values, info] = find(name);
    return {values->data(), info->shape[0]};
  }

  ImageEncoderWeights weights() {
    ImageEncoderWeights w;
    w.patch_embed = matrix("vision.patch_embed.proj.weight");
    w.patch_embed_bias = vector("vision.patch_embed.proj.bias");
    for (int i = 0; i < 2; ++i) w.layers.push_back(layer("vision.blocks." + std::to_string(i) + "."));
    w.norm = vector("vision.norm.weight");
    w.aligner_w1 = matrix("aligner.w1.weight");
    w.aligner_w1_bias = vector("aligner.w1.bias");
    w.aligner_w2 = matrix("aligner.w2.weight");
    w.aligner_w2_bias = vector("aligner.w2.bias");
    return w;
  }

  static ImageEncoderConfig config() {
    ImageEncoderConfig c;
    c.plan = model_a_plan_config();
    c.num_layers = 2;
    c.hidden = 64;
    c.num_heads = 4;
    c.inner = 96;
    c.model_hidden = 256;
    return c;
  }

 private:
  std::pair<const std::vector<bf16>*, const TensorInfo*> find(const std::string& name) {
    for (const auto& file : files_)
      if (const TensorInfo* info = file->find(name)) {
        std::vector<bf16>& values = owned_[name];
        values.resize(static_cast<size_t>(info->num_elements()));
        std::memcpy(values.data(), file->bytes(*info).data(), values.size() * sizeof(bf16));
        return {&values, info};
      }
    ADD_FAILURE() << "no tensor " << name;
    std::abort();
  }

  ImageEncoderLayerWeights layer(const std::string& prefix) {
    return {.norm1 = vector(prefix + "norm1.weight"),
            .norm2 = vector(prefix + "norm2.weight"),
            .wqkv = matrix(prefix + "attn.wqkv.weight"),
            .wqkv_bias = vector(prefix + "attn.wqkv.bias"),
            .wo = matrix(prefix + "attn.wo.weight"),
            .wo_bias = vector(prefix + "attn.wo.bias"),
            .w1 = matrix(prefix + "mlp.w1.weight"),
            .w2 = matrix(prefix + "mlp.w2.weight")};
  }

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, std::vector<bf16>> owned_;
};

ModelA& model_a() {
  static ModelA model;
  return model;
}

struct Machine {
  explicit Machine(int num_threads) : pool(num_threads) {}
  ThreadPool pool;
  Scratch scratch;
  ExecutionContext context() { return {&pool, &scratch}; }
};

ImageEncoder make_encoder(CpuLevel level) {
  auto encoder = ImageEncoder::create(ModelA::config(), model_a().weights(), {Backend::kCpu, level});
  EXPECT_TRUE(encoder.ok()) << encoder.status().message();
  return std::move(encoder).value();
}

const SafetensorsFile& golden() {
  static const SafetensorsFile file =
      SafetensorsFile::read(DEEPINFER_TESTDATA "/model_a/golden/vision.safetensors").value();
  return file;
}

Canvas golden_canvas(int k) {
  const auto size = golden().integers("img" + std::to_string(k) + ".size_wh");
  return make_canvas(make_test_image(size.value()[0], size.value()[1], k), model_a_plan_config());
}

std::vector<float> floats(View<const bf16, dim::rows, dim::hidden> rows) {
  std::vector<float> values;
  for (int64_t r = 0; r < rows.size[0]; ++r)
    for (int64_t i = 0; i < rows.size[1]; ++i) values.push_back(to_float(rows(r, i)));
  return values;
}

double relative_rms(const std::vector<float>& actual, const std::vector<float>& expected) {
  EXPECT_EQ(actual.size(), expected.size());
  double error = 0, total = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    error += std::pow(double{actual[i]} - double{expected[i]}, 2);
    total += std::pow(double{expected[i]}, 2);
  }
  return std::sqrt(error / total);
}

TEST(ImageEncoder, EqualsTheReferenceOnTheGoldenImages) {
  Machine machine(2);
  for (const CpuLevel level : {CpuLevel::kRef, machine_cpu_level()}) {
    const ImageEncoder encoder = make_encoder(level);
    for (int k = 0; k < 3; ++k) {
      const Canvas canvas = golden_canvas(k);
      const Canvas* const canvases[] = {&canvas};
      const std::string prefix = "img" + std::to_string(k) + ".";
      std::map<std::string, int> num_seen;
      const auto rows = encoder.encode(
          canvases, machine.context(), [&](std::string_view tap, View<const bf16, dim::rows, dim::hidden> rows) {
            std::string name(tap);
            if (tap == "attn" || tap == "block")
              name = "block" + std::to_string(num_seen[name]++) + (tap == "attn" ? ".attn" : "");
            if (!golden().find(prefix + name)) return;
            const double difference = relative_rms(floats(rows), golden().floats(prefix + name).value());
            RecordProperty(prefix + name, std::to_string(difference));
            EXPECT_LE(difference, name == "patch_embed" ? 0.0 : 0.01) << prefix << name << " at " << to_string(level);
          });
      EXPECT_TRUE(rows.ok()) << rows.status().message();
    }
  }
}

bool same_bits(const ImageRows& a, const ImageRows& b) {
  return a.digest == b.digest && a.rows.size() == b.rows.size() &&
         std::memcmp(a.rows.data(), b.rows.data(), static_cast<size_t>(a.rows.size_bytes())) == 0;
}

TEST(ImageEncoder, GivesTheSameBitsForAnyBatchThreadCountAndLevel) {
  std::vector<Canvas> canvases;
  for (const int k : {0, 1, 2}) canvases.push_back(golden_canvas(k));
  canvases.push_back(make_canvas(make_test_image(300, 20, 5), model_a_plan_config()));
  canvases.push_back(make_canvas(make_test_image(9, 200, 6), model_a_plan_config()));
  Machine one(1), three(3);
  const ImageEncoder ref = make_encoder(CpuLevel::kRef), fast = make_encoder(machine_cpu_level());
  std::vector<ImageRows> alone;
  for (const Canvas& canvas : canvases) {
    const Canvas* const single[] = {&canvas};
    alone.push_back(std::move(ref.encode(single, one.context()).value()[0]));
  }
  const std::vector<size_t> orders[] = {{0, 1, 2, 3, 4}, {4, 2, 0, 3, 1, 2}, {1, 1, 1}};
  for (const auto& order : orders)
    for (const ImageEncoder* encoder : {&ref, &fast})
      for (Machine* machine : {&one, &three}) {
        std::vector<const Canvas*> batch;
        for (const size_t i : order) batch.push_back(&canvases[i]);
        const auto encoded = encoder->encode(batch, machine->context());
        const std::vector<ImageRows>& rows = encoded.value();
        ASSERT_EQ(rows.size(), order.size());
        for (size_t i = 0; i < order.size(); ++i) EXPECT_TRUE(same_bits(rows[i], alone[order[i]])) << order[i];
      }
}

// Every tensor of the tower in a device's memory.
class WeightsOn {
 public:
  WeightsOn(Device& device, ImageEncoderWeights weights) : device_(device), weights_(std::move(weights)) {
    bring(weights_.patch_embed), bring(weights_.patch_embed_bias), bring(weights_.norm);
    for (ImageEncoderLayerWeights& layer : weights_.layers) {
      for (Bf16Vector* v : {&layer.norm1, &layer.norm2, &layer.wqkv_bias, &layer.wo_bias}) bring(*v);
      for (Bf16Matrix* m : {&layer.wqkv, &layer.wo, &layer.w1, &layer.w2}) bring(*m);
    }
    bring(weights_.aligner_w1), bring(weights_.aligner_w1_bias);
    bring(weights_.aligner_w2), bring(weights_.aligner_w2_bias);
  }
  const ImageEncoderWeights& get() const { return weights_; }

 private:
  void bring(Bf16Matrix& m) { m.data = copy(m.data, m.out * m.in); }
  void bring(Bf16Vector& v) { v.data = copy(v.data, v.size); }
  const bf16* copy(const bf16* from, int64_t size) {
    Buffer<bf16>& to = copies_.emplace_back(device_.memory(), size);
    device_.copy(to.data(), from, to.size_bytes());
    return to.data();
  }
  Device& device_;
  ImageEncoderWeights weights_;
  std::vector<Buffer<bf16>> copies_;
};

std::vector<Canvas> odd_canvases() {
  std::vector<Canvas> canvases;
  for (const int k : {0, 1, 2}) canvases.push_back(golden_canvas(k));
  canvases.push_back(make_canvas(make_test_image(300, 20, 5), model_a_plan_config()));
  return canvases;
}

std::vector<ImageRows> encode_on(Device& device, const Target& target, std::span<const Canvas> canvases,
                                 const ImageEncoderTap& tap = nullptr) {
  const WeightsOn weights(device, model_a().weights());
  const auto encoder = ImageEncoder::create(ModelA::config(), weights.get(), target);
  EXPECT_TRUE(encoder.ok()) << encoder.status().message();
  Scratch scratch(device.memory());
  std::vector<const Canvas*> batch;
  for (const Canvas& canvas : canvases) batch.push_back(&canvas);
  auto rows = encoder.value().encode(batch, {.scratch = &scratch, .device = &device}, tap);
  EXPECT_TRUE(rows.ok()) << rows.status().message();
  return std::move(rows).value();
}

std::vector<ImageRows> encode_on_host(std::span<const Canvas> canvases) {
  Machine machine(2);
  std::vector<const Canvas*> batch;
  for (const Canvas& canvas : canvases) batch.push_back(&canvas);
  return std::move(make_encoder(machine_cpu_level()).encode(batch, machine.context()).value());
}

TEST(ImageEncoder, OnADeviceWithMemoryOfItsOwnItGivesTheBitsOfTheHost) {
  const auto canvases = odd_canvases();
  const auto host = encode_on_host(canvases);
  SecondHeap heap;
  const auto apart = encode_on(heap, {Backend::kCpu, machine_cpu_level()}, canvases);
  ASSERT_EQ(apart.size(), host.size());
  for (size_t i = 0; i < host.size(); ++i) EXPECT_TRUE(same_bits(apart[i], host[i])) << i;
}

TEST(ImageEncoder, OnAGpuItGivesTheBitsOfTheHostAndOnTensorCoresStaysNearTheReference) {
  auto gpu = open_cuda_device();
  if (!gpu.ok()) GTEST_SKIP() << gpu.status().message();
  const auto canvases = odd_canvases();
  const auto host = encode_on_host(canvases);
  const auto device = encode_on(*gpu.value(), {Backend::kCuda}, canvases);
  ASSERT_EQ(device.size(), host.size());
  for (size_t i = 0; i < host.size(); ++i) EXPECT_TRUE(same_bits(device[i], host[i])) << i;
  size_t image = 0;
  encode_on(*gpu.value(), {.backend = Backend::kCuda, .is_exact = false}, std::span(canvases).first(3),
            [&](std::string_view tap, View<const bf16, dim::rows, dim::hidden> rows) {
              if (tap != "aligner_out") return;
              const std::string name = "img" + std::to_string(image++) + ".aligner_out";
              EXPECT_LE(relative_rms(floats(rows), golden().floats(name).value()), 0.01) << name;
            });
  EXPECT_EQ(image, 3u);
}

TEST(ImageEncoder, RowsFitThePlannedSpan) {
  Machine machine(1);
  const ImageEncoder encoder = make_encoder(machine_cpu_level());
  const auto encoded = encode_image(make_test_image(48, 100, 0), encoder, machine.context());
  const ImageRows& rows = encoded.value();
  const ImagePlan plan = plan_image(48, 100, model_a_plan_config());
  EXPECT_EQ(rows.grid_rows, plan.grid_rows);
  EXPECT_EQ(rows.grid_columns, plan.grid_columns);
  EXPECT_EQ(rows.rows.size(), plan.grid_rows * plan.grid_columns * 256);
}

TEST(ImageEncoder, CheckNamesTheMisshapenTensor) {
  ImageEncoderWeights weights = model_a().weights();
  weights.layers[1].wqkv.out = 191;
  EXPECT_EQ(check(ModelA::config(), weights).message(), "vision: layer 1 wqkv is [191, 64], expected [192, 64]");
  weights = model_a().weights();
  weights.norm = {};
  EXPECT_EQ(check(ModelA::config(), weights).message(), "vision: norm is missing");
  ImageEncoderConfig config = ModelA::config();
  config.num_heads = 3;
  EXPECT_EQ(check(config, model_a().weights()).message(),
            "vision: 3 heads of a width of 64: expected heads of a multiple of 4");
}

}  // namespace
}  // namespace deepinfer
