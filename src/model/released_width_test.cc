// SPDX-License-Identifier: MIT
// The matrix ops of one layer at the released widths against a recomputation in double precision from the same packed
// weights. The layer is layer 2 of the real-width slice where that lies in build/slice (scripts/make_slice.py writes
// it), else random packed weights of the same shapes. Tolerances: decision 27 for linears, the golden notes' 1e-2 for
// experts.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/philox.h"
#include "kernels/experts/experts.h"
#include "kernels/linear/linear.h"
#include "model/weights.h"
#include "tensor/cpu_features.h"
#include "tensor/float8.h"
#include "tensor/scratch.h"

namespace deepinfer {
namespace {

constexpr int64_t kHidden = 5120, kRank = 1280, kHeads = 64, kHeadDim = 512, kInner = 2304, kGroups = 8,
                  kOutRank = 1024;
constexpr int64_t kRows = 3;

// Packed matrices with random codes (no NaN) and scales around 2^-8.
class RandomMatrices {
 public:
  Fp8Matrix fp8(int64_t out, int64_t in) {
    const uint8_t* codes = bytes(out * in, [&] {
      const uint8_t c = static_cast<uint8_t>(rng_.next_u32());
      return (c & 0x7F) == 0x7F ? uint8_t{0} : c;
    });
    return {codes, scales(num_scale_blocks(out) * num_scale_blocks(in)), out, in};
  }
  Fp4Matrix fp4(int64_t out, int64_t in) {
    const uint8_t* codes = bytes(out * in / 2, [&] { return static_cast<uint8_t>(rng_.next_u32()); });
    return {codes, scales(out * in / kScaleBlock), out, in};
  }

 private:
  template <typename Make>
  const uint8_t* bytes(int64_t n, const Make& make) {
    Buffer<uint8_t>& buffer = buffers_.emplace_back(n);
    for (uint8_t& byte : buffer) byte = make();
    return buffer.data();
  }
  const uint8_t* scales(int64_t n) {
    return bytes(n, [&] { return static_cast<uint8_t>(117 + rng_.below(4)); });
  }
  Rng rng_{2026};
  std::vector<Buffer<uint8_t>> buffers_;
};

struct LayerMatrices {
  Fp8Matrix wq_a, wq_b, wkv, wo_a, wo_b;
  ExpertMatrices expert;
  std::string origin;
  std::shared_ptr<const ModelWeights> slice;  // keeps what the views borrow
  std::shared_ptr<RandomMatrices> random;
};

LayerMatrices layer_matrices() {
  const std::string folder = std::string(DEEPINFER_SOURCE_DIR) + "/build/slice";
  LayerMatrices m;
  if (std::filesystem::exists(folder + "/config.json")) {
    auto checkpoint = Checkpoint::open(folder);
    CHECK(checkpoint.ok());
    auto weights = ModelWeights::bind(std::make_shared<const Checkpoint>(std::move(checkpoint).value()));
    CHECK(weights.ok());
    m.slice = std::make_shared<const ModelWeights>(std::move(weights).value());
    const LayerWeights& layer = m.slice->layers[2];
    const AttentionWeights& a = layer.attention;
    const ExpertWeights& e = layer.moe.experts[0];
    m.wq_a = a.wq_a;
    m.wq_b = a.wq_b;
    m.wkv = a.wkv;
    m.wo_a = a.wo_a;
    m.wo_b = a.wo_b;
    m.expert = {e.w1, e.w3, e.w2};
    m.origin = "slice";
    return m;
  }
  m.random = std::make_shared<RandomMatrices>();
  m.wq_a = m.random->fp8(kRank, kHidden);
  m.wq_b = m.random->fp8(kHeads * kHeadDim, kRank);
  m.wkv = m.random->fp8(kHeadDim, kHidden);
  m.wo_a = m.random->fp8(kGroups * kOutRank, kHeads * kHeadDim / kGroups);
  m.wo_b = m.random->fp8(kHidden, kGroups * kOutRank);
  m.expert = {m.random->fp4(kInner, kHidden), m.random->fp4(kInner, kHidden), m.random->fp4(kHidden, kInner)};
  m.origin = "random";
  return m;
}

double weight_at(const Fp8Matrix& w, int64_t o, int64_t k) {
  return double{e4m3_to_float(w.row(o)[k])} * double{e8m0_to_float(w.row_scales(o)[k / kScaleBlock])};
}
double weight_at(const Fp4Matrix& w, int64_t o, int64_t k) {
  const uint8_t pair = w.row(o)[k / 2];
  return double{e2m1_to_float(k % 2 ? pair >> 4 : pair & 15)} * double{e8m0_to_float(w.row_scales(o)[k / kScaleBlock])};
}

// Activation rounding of model.md 4.1: blocks of 32, scale the power of two not below amax / 448, e4m3 codes.
std::vector<double> rounded_activation(std::span<const bf16> x) {
  std::vector<double> out(x.size());
  for (size_t begin = 0; begin < x.size(); begin += kScaleBlock) {
    double amax = 1e-4;
    for (size_t k = begin; k < begin + kScaleBlock; ++k) amax = std::max(amax, std::fabs(double{to_float(x[k])}));
    const double scale = std::exp2(std::ceil(std::log2(amax / 448)));
    for (size_t k = begin; k < begin + kScaleBlock; ++k)
      out[k] = scale * double{e4m3_to_float(float_to_e4m3(static_cast<float>(double{to_float(x[k])} / scale)))};
  }
  return out;
}

std::vector<bf16> random_rows(int64_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<bf16> x(static_cast<size_t>(n));
  for (bf16& value : x) value = to_bf16(4 * rng.uniform() - 2);
  return x;
}

struct Sum {
  double value = 0, magnitude = 0;
};
template <typename Matrix>
Sum dot(std::span<const double> x, const Matrix& w, int64_t o) {
  Sum sum;
  for (size_t k = 0; k < x.size(); ++k) {
    const double product = x[k] * weight_at(w, o, static_cast<int64_t>(k));
    sum.value += product;
    sum.magnitude += std::fabs(product);
  }
  return sum;
}

struct Ops {
  Scratch scratch;
  ExecutionContext context{.pool = nullptr, .scratch = &scratch};
  Kernel<LinearParams> linear =
      resolve<LinearParams>("linear", linear_rows(), {Backend::kCpu, machine_cpu_level()}).value();
  Kernel<ExpertsParams> experts =
      resolve<ExpertsParams>("experts", experts_rows(), {Backend::kCpu, machine_cpu_level()}).value();
};

void expect_linear(Ops& device, const Fp8Matrix& w, bool round_activation, int num_groups, const char* name) {
  const int64_t width = w.in * num_groups;
  const auto x = random_rows(kRows * width, 7);
  std::vector<bf16> y(static_cast<size_t>(kRows * w.out));
  device.linear(device.context, {.x = {x.data(), {kRows, width}},
                                 .weight = w,
                                 .round_activation = round_activation,
                                 .num_groups = num_groups,
                                 .out = {y.data(), {kRows, w.out}}});
  for (int64_t r = 0; r < kRows; ++r)
    for (int64_t o = 0; o < w.out; o += 1 + w.out / 97) {  // about a hundred outputs spread over the matrix
      const int64_t group = o / (w.out / num_groups);
      const std::span<const bf16> row(x.data() + r * width + group * w.in, static_cast<size_t>(w.in));
      std::vector<double> values(row.size());
      for (size_t k = 0; k < row.size(); ++k) values[k] = to_float(row[k]);
      const Sum sum = dot(
          round_activation ? std::span<const double>(rounded_activation(row)) : std::span<const double>(values), w, o);
      EXPECT_NEAR(to_float(y[static_cast<size_t>(r * w.out + o)]), sum.value,
                  std::exp2(std::floor(std::log2(sum.magnitude)) - 7))
          << name << " row " << r << " output " << o;
    }
}

double bf(double x) { return round_to_bf16(static_cast<float>(x)); }

}  // namespace

TEST(ReleasedWidths, LinearsEqualADoublePrecisionRecomputation) {
  const LayerMatrices m = layer_matrices();
  std::printf("weights: %s\n", m.origin.c_str());
  Ops device;
  expect_linear(device, m.wq_a, true, 1, "wq_a");
  expect_linear(device, m.wq_b, true, 1, "wq_b");
  expect_linear(device, m.wkv, true, 1, "wkv");
  expect_linear(device, m.wo_a, false, kGroups, "wo_a");
  expect_linear(device, m.wo_b, true, 1, "wo_b");
}

TEST(ReleasedWidths, AnExpertEqualsADoublePrecisionRecomputation) {
  const LayerMatrices m = layer_matrices();
  Ops device;
  const auto x = random_rows(kHidden, 9);
  const std::vector<int32_t> begin = {0, 1};
  const float weight = 0.7f;
  std::vector<bf16> y(static_cast<size_t>(kHidden));
  device.experts(device.context, {.x = {x.data(), {1, kHidden}},
                                  .experts = {&m.expert, 1},
                                  .begin = {begin.data(), {2}},
                                  .weight = {&weight, {1}},
                                  .swiglu_limit = 10,
                                  .out = {y.data(), {1, kHidden}}});
  const auto w1 = std::get<Fp4Matrix>(m.expert.w1), w3 = std::get<Fp4Matrix>(m.expert.w3),
             w2 = std::get<Fp4Matrix>(m.expert.w2);
  const std::vector<double> input = rounded_activation(x);
  std::vector<bf16> hidden(static_cast<size_t>(kInner));
  for (int64_t o = 0; o < kInner; ++o) {
    const double gate = std::min(bf(dot(input, w1, o).value), 10.0);
    const double up = std::clamp(bf(dot(input, w3, o).value), -10.0, 10.0);
    hidden[static_cast<size_t>(o)] = to_bf16(static_cast<float>(gate / (1 + std::exp(-gate)) * up * double{weight}));
  }
  const std::vector<double> middle = rounded_activation(hidden);
  double error = 0, size = 0;
  for (int64_t o = 0; o < kHidden; o += 13) {
    const double expected = dot(middle, w2, o).value;
    error += std::pow(double{to_float(y[static_cast<size_t>(o)])} - expected, 2);
    size += expected * expected;
  }
  EXPECT_LE(std::sqrt(error / size), 1e-2);
}

}  // namespace deepinfer
