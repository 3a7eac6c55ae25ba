// SPDX-License-Identifier: MIT
#include "vision/resample.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/check.h"

namespace deepinfer {
namespace {

constexpr int kFractionBits = 22;  // 8 bits of sample and 2 of overshoot leave these of an int32
constexpr int32_t kHalf = int32_t{1} << (kFractionBits - 1);
constexpr double kBicubicSupport = 2.0;

// The taps of one output position: `weights` from `begin` on in the input.
struct Taps {
  int64_t begin = 0;
  int32_t count = 0;
  size_t first_weight = 0;
};

struct Filter {
  std::vector<Taps> taps;
  std::vector<int32_t> weights;  // fixed point with kFractionBits
};

// Keys' cubic convolution kernel with a = -0.5.
double bicubic(double x) {
  constexpr double a = -0.5;
  x = std::fabs(x);
  if (x < 1.0) return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
  if (x < 2.0) return (((x - 5) * x + 8) * x - 4) * a;
  return 0.0;
}

int32_t to_fixed(double weight) {
  const double scaled = weight * (int64_t{1} << kFractionBits);
  return static_cast<int32_t>(weight < 0 ? scaled - 0.5 : scaled + 0.5);
}

Filter make_filter(int64_t in_size, int64_t out_size) {
  const double scale = static_cast<double>(in_size) / static_cast<double>(out_size);
  const double widening = std::max(scale, 1.0), support = kBicubicSupport * widening, inverse = 1.0 / widening;
  Filter filter;
  std::vector<double> weights;
  for (int64_t i = 0; i < out_size; ++i) {
    const double center = (static_cast<double>(i) + 0.5) * scale;
    const int64_t begin = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t end = std::min(static_cast<int64_t>(center + support + 0.5), in_size);
    weights.clear();
    double sum = 0;
    for (int64_t x = begin; x < end; ++x) {
      weights.push_back(bicubic((static_cast<double>(x) - center + 0.5) * inverse));
      sum += weights.back();
    }
    filter.taps.push_back({begin, static_cast<int32_t>(end - begin), filter.weights.size()});
    for (const double weight : weights) filter.weights.push_back(to_fixed(sum != 0 ? weight / sum : weight));
  }
  return filter;
}

uint8_t to_sample(int32_t fixed) { return static_cast<uint8_t>(std::clamp(fixed >> kFractionBits, 0, 255)); }

void resample_row(const uint8_t* in, const Filter& filter, uint8_t* out) {
  for (const Taps& taps : filter.taps) {
    int32_t sum[3] = {kHalf, kHalf, kHalf};
    const uint8_t* pixel = in + 3 * taps.begin;
    const int32_t* weights = filter.weights.data() + taps.first_weight;
    for (int32_t k = 0; k < taps.count; ++k, pixel += 3)
      for (int c = 0; c < 3; ++c) sum[c] += weights[k] * pixel[c];
    for (int c = 0; c < 3; ++c) *out++ = to_sample(sum[c]);
  }
}

RgbImage resample_columns_of_rows(const RgbImage& image, int64_t width) {
  const Filter filter = make_filter(image.width, width);
  RgbImage out(width, image.height);
  for (int64_t y = 0; y < image.height; ++y) resample_row(image.row(y), filter, out.row(y));
  return out;
}

RgbImage resample_rows(const RgbImage& image, int64_t height) {
  const Filter filter = make_filter(image.height, height);
  RgbImage out(image.width, height);
  const int64_t row_samples = 3 * image.width;
  std::vector<int32_t> sums(static_cast<size_t>(row_samples));
  for (int64_t y = 0; y < height; ++y) {
    const Taps& taps = filter.taps[static_cast<size_t>(y)];
    std::ranges::fill(sums, kHalf);
    for (int32_t k = 0; k < taps.count; ++k) {
      const int32_t weight = filter.weights[taps.first_weight + static_cast<size_t>(k)];
      const uint8_t* in = image.row(taps.begin + k);
      for (int64_t i = 0; i < row_samples; ++i) sums[static_cast<size_t>(i)] += weight * in[i];
    }
    uint8_t* samples = out.row(y);
    for (int64_t i = 0; i < row_samples; ++i) samples[i] = to_sample(sums[static_cast<size_t>(i)]);
  }
  return out;
}

RgbImage copy(const RgbImage& image) {
  RgbImage out(image.width, image.height);
  std::copy(image.pixels.begin(), image.pixels.end(), out.pixels.begin());
  return out;
}

}  // namespace

RgbImage resample_bicubic(const RgbImage& image, int64_t width, int64_t height) {
  CHECK(image.width >= 1 && image.height >= 1 && width >= 1 && height >= 1);
  if (width == image.width && height == image.height) return copy(image);
  if (width == image.width) return resample_rows(image, height);
  RgbImage wide = resample_columns_of_rows(image, width);
  return height == image.height ? std::move(wide) : resample_rows(wide, height);
}

}  // namespace deepinfer
