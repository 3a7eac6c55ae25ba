// SPDX-License-Identifier: MIT
// G1 of dspark-vision.md 4: a small tower with weights from a formula, computed in double precision without rounding.
// The recomputation here reproduces its printed numbers; the encoder, which rounds to bf16, must stay near the
// recomputation.
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <vector>

#include "vision/image_encoder.h"
#include "vision/patches.h"
#include "vision/test_image.h"

namespace deepinfer {
namespace {

using Doubles = std::vector<double>;
constexpr int64_t kRows = 4, kColumns = 5, kPatch = 4, kHidden = 32, kHeads = 2, kInner = 48, kModel = 24, kCells = 4;
constexpr int64_t kPatches = kRows * kColumns, kHeadDim = kHidden / kHeads, kQuarter = kHeadDim / 4;

struct Matrix {
  int64_t out = 0, in = 0;
  Doubles values;
};

class Weights {
 public:
  Matrix fill(int64_t out, int64_t in, double scale, double offset = 0) {
    Matrix m{out, in, {}};
    for (int64_t i = 0; i < out * in; ++i) {
      state_ = (1103515245 * state_ + 12345) % (int64_t{1} << 31);
      m.values.push_back(offset + (static_cast<double>(state_) / 2147483648.0 - 0.5) * 2 * scale);
    }
    return m;
  }

 private:
  int64_t state_ = 1;
};

struct Layer {
  Matrix norm1, norm2, wqkv, wqkv_bias, wo, wo_bias, w1, w2;
};

struct Tower {
  Matrix patch, patch_bias, norm, aligner1, aligner1_bias, aligner2, aligner2_bias;
  std::vector<Layer> layers;
};

Tower make_tower() {
  Weights w;
  Tower t;
  t.patch = w.fill(kHidden, 3 * kPatch * kPatch, 0.2);
  t.patch_bias = w.fill(1, kHidden, 0.1);
  for (int i = 0; i < 2; ++i) {
    Layer l;
    l.norm1 = w.fill(1, kHidden, 0.1, 1);
    l.norm2 = w.fill(1, kHidden, 0.1, 1);
    l.wqkv = w.fill(3 * kHidden, kHidden, 0.25);
    l.wqkv_bias = w.fill(1, 3 * kHidden, 0.1);
    l.wo = w.fill(kHidden, kHidden, 0.25);
    l.wo_bias = w.fill(1, kHidden, 0.1);
    l.w1 = w.fill(2 * kInner, kHidden, 0.25);
    l.w2 = w.fill(kHidden, kInner, 0.25);
    t.layers.push_back(l);
  }
  t.norm = w.fill(1, kHidden, 0.1, 1);
  t.aligner1 = w.fill(kModel, kHidden * 9, 0.1);
  t.aligner1_bias = w.fill(1, kModel, 0.1);
  t.aligner2 = w.fill(kModel, kModel, 0.3);
  t.aligner2_bias = w.fill(1, kModel, 0.1);
  return t;
}

Doubles linear(const Doubles& x, const Matrix& w, const Matrix* bias = nullptr) {
  const size_t in = static_cast<size_t>(w.in), out = static_cast<size_t>(w.out), rows = x.size() / in;
  Doubles y;
  for (size_t r = 0; r < rows; ++r)
    for (size_t o = 0; o < out; ++o) {
      double sum = bias ? bias->values[o] : 0;
      for (size_t i = 0; i < in; ++i) sum += x[r * in + i] * w.values[o * in + i];
      y.push_back(sum);
    }
  return y;
}

Doubles rms_norm(const Doubles& x, const Matrix& w) {
  Doubles y = x;
  for (size_t r = 0; r < x.size(); r += kHidden) {
    double squares = 0;
    for (size_t i = 0; i < kHidden; ++i) squares += x[r + i] * x[r + i];
    for (size_t i = 0; i < kHidden; ++i) y[r + i] = w.values[i] * x[r + i] / std::sqrt(squares / kHidden + 1e-6);
  }
  return y;
}

// Rotates the head that starts at `head`.
void rotate(double* head, int64_t row, int64_t column) {
  for (int64_t d = 0; d < 2 * kQuarter; ++d) {
    const double angle = static_cast<double>(d < kQuarter ? row : column) *
                         std::pow(10000.0, -2.0 * static_cast<double>(d % kQuarter) / (2 * kQuarter));
    const double a = head[d], b = head[d + 2 * kQuarter];
    head[d] = a * std::cos(angle) - b * std::sin(angle);
    head[d + 2 * kQuarter] = b * std::cos(angle) + a * std::sin(angle);
  }
}

Doubles attend(Doubles qkv) {
  for (int64_t t = 0; t < kPatches; ++t)
    for (int64_t h = 0; h < 2 * kHeads; ++h)
      rotate(&qkv[static_cast<size_t>(t * 3 * kHidden + h * kHeadDim)], t / kColumns, t % kColumns);
  Doubles out(static_cast<size_t>(kPatches * kHidden), 0.0);
  const auto at = [&](int64_t t, int64_t part, int64_t h, int64_t d) {
    return qkv[static_cast<size_t>(t * 3 * kHidden + part * kHidden + h * kHeadDim + d)];
  };
  for (int64_t h = 0; h < kHeads; ++h)
    for (int64_t q = 0; q < kPatches; ++q) {
      Doubles weights;
      double total = 0;
      for (int64_t k = 0; k < kPatches; ++k) {
        double dot = 0;
        for (int64_t d = 0; d < kHeadDim; ++d) dot += at(q, 0, h, d) * at(k, 1, h, d);
        weights.push_back(std::exp(dot / std::sqrt(static_cast<double>(kHeadDim))));
        total += weights.back();
      }
      for (int64_t k = 0; k < kPatches; ++k)
        for (int64_t d = 0; d < kHeadDim; ++d)
          out[static_cast<size_t>(q * kHidden + h * kHeadDim + d)] +=
              weights[static_cast<size_t>(k)] / total * at(k, 2, h, d);
    }
  return out;
}

void add(Doubles& x, const Doubles& y) {
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
}

Doubles run_tower(const Tower& t, const Doubles& patches) {
  Doubles x = linear(patches, t.patch, &t.patch_bias);
  for (const Layer& l : t.layers) {
    add(x, linear(attend(linear(rms_norm(x, l.norm1), l.wqkv, &l.wqkv_bias)), l.wo, &l.wo_bias));
    const Doubles gate_up = linear(rms_norm(x, l.norm2), l.w1);
    Doubles product;
    for (size_t r = 0; r < gate_up.size(); r += 2 * kInner)
      for (size_t i = 0; i < kInner; ++i)
        product.push_back(gate_up[r + i] / (1 + std::exp(-gate_up[r + i])) * gate_up[r + kInner + i]);
    add(x, linear(product, l.w2));
  }
  return rms_norm(x, t.norm);
}

Doubles project(const Tower& t, const Doubles& tower) {
  Doubles cells(static_cast<size_t>(kCells * kHidden * 9), 0.0);
  for (int64_t p = 0; p < kPatches; ++p)
    for (int64_t c = 0; c < kHidden; ++c) {
      const int64_t row = p / kColumns, column = p % kColumns, cell = row / 3 * 2 + column / 3;
      cells[static_cast<size_t>(cell * kHidden * 9 + c * 9 + row % 3 * 3 + column % 3)] =
          tower[static_cast<size_t>(p * kHidden + c)];
    }
  Doubles inner = linear(cells, t.aligner1, &t.aligner1_bias);
  for (double& v : inner) v = 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)));
  return linear(inner, t.aligner2, &t.aligner2_bias);
}

RgbImage make_image() { return make_test_image(kColumns * kPatch, kRows * kPatch, 0); }

Doubles make_patches() {
  const RgbImage image = make_image();
  Doubles patches;
  for (int64_t p = 0; p < kPatches; ++p)
    for (int64_t c = 0; c < 3; ++c)
      for (int64_t y = 0; y < kPatch; ++y)
        for (int64_t x = 0; x < kPatch; ++x)
          patches.push_back((image.row(p / kColumns * kPatch + y)[3 * (p % kColumns * kPatch + x) + c] / 255.0 - 0.5) /
                            0.5);
  return patches;
}

double sum(const Doubles& x) {
  double total = 0;
  for (const double v : x) total += v;
  return total;
}

TEST(VisionG1, TheRecomputationGivesThePrintedNumbers) {
  const Tower tower = make_tower();
  const Doubles patches = make_patches(), out = run_tower(tower, patches), rows = project(tower, out);
  EXPECT_NEAR(sum(patches), -207.811765, 1e-6);
  EXPECT_NEAR(sum(out), -193.405013, 1e-6);
  const double row7[] = {-1.334646, 1.665843, -0.224805};
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(out[7 * kHidden + i], row7[i], 1e-6);
  EXPECT_NEAR(sum(rows), 4.513450, 1e-6);
  const double heads[4][4] = {{.032669, .093468, -.139337, -.177154},
                              {.208240, .768460, -.066774, -.258870},
                              {.102064, .051246, .137681, -.148605},
                              {.020954, .115039, .229067, -.230452}};
  for (size_t r = 0; r < 4; ++r)
    for (size_t i = 0; i < 4; ++i)
      EXPECT_NEAR(rows[r * kModel + i], heads[r][i], 4e-6);  // .208240 is printed for .208243
}

// Rounds a matrix to bf16 in place and lends it.
class Rounded {
 public:
  Bf16Matrix matrix(Matrix& m) { return {round(m), m.out, m.in}; }
  Bf16Vector vector(Matrix& m) { return {round(m), m.in}; }

 private:
  const bf16* round(Matrix& m) {
    auto& values = *owned_.emplace_back(std::make_unique<std::vector<bf16>>());
    for (double& v : m.values) {
      values.push_back(to_bf16(static_cast<float>(v)));
      v = double{to_float(values.back())};
    }
    return values.data();
  }
  std::vector<std::unique_ptr<std::vector<bf16>>> owned_;
};

TEST(VisionG1, TheEncoderStaysNearTheRecomputation) {
  Tower t = make_tower();
  Rounded rounded;
  ImageEncoderWeights w;
  w.patch_embed = rounded.matrix(t.patch);
  w.patch_embed_bias = rounded.vector(t.patch_bias);
  for (Layer& l : t.layers)
    w.layers.push_back({rounded.vector(l.norm1), rounded.vector(l.norm2), rounded.matrix(l.wqkv),
                        rounded.vector(l.wqkv_bias), rounded.matrix(l.wo), rounded.vector(l.wo_bias),
                        rounded.matrix(l.w1), rounded.matrix(l.w2)});
  w.norm = rounded.vector(t.norm);
  w.aligner_w1 = rounded.matrix(t.aligner1);
  w.aligner_w1_bias = rounded.vector(t.aligner1_bias);
  w.aligner_w2 = rounded.matrix(t.aligner2);
  w.aligner_w2_bias = rounded.vector(t.aligner2_bias);
  ImageEncoderConfig config;
  config.plan = {.patch_size = kPatch, .downsample_ratio = 3, .max_image_tokens = 64, .min_pixels = 1};
  config.num_layers = 2;
  config.hidden = kHidden;
  config.num_heads = kHeads;
  config.inner = kInner;
  config.model_hidden = kModel;
  const auto encoder = ImageEncoder::create(config, w, {Backend::kCpu, machine_cpu_level()});
  ASSERT_TRUE(encoder.ok()) << encoder.status().message();
  Scratch scratch;
  const auto encoded = encode_image(make_image(), encoder.value(), {nullptr, &scratch});
  ASSERT_TRUE(encoded.ok()) << encoded.status().message();
  const ImageRows& rows = encoded.value();
  const Doubles want = project(t, run_tower(t, make_patches()));
  ASSERT_EQ(rows.rows.size(), static_cast<int64_t>(want.size()));
  double error = 0, total = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += std::pow(double{to_float(rows.rows[static_cast<int64_t>(i)])} - want[i], 2);
    total += want[i] * want[i];
  }
  EXPECT_LT(std::sqrt(error / total), 0.02);
}

}  // namespace
}  // namespace deepinfer
