// SPDX-License-Identifier: MIT
// Expected values: Pillow (dspark-vision.md 3.3; testdata/images/PROVENANCE) and the published reference
// (testdata/model_a).
#include "vision/canvas.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "base/sha256.h"
#include "tensor/safetensors.h"
#include "vision/resample.h"
#include "vision/test_image.h"

namespace deepinfer {
namespace {

Json read_json(const std::string& path) {
  const auto text = read_file(path);
  EXPECT_TRUE(text.ok()) << text.status().message();
  auto value = parse_json(text.value());
  EXPECT_TRUE(value.ok()) << value.status().message();
  return value.ok() ? std::move(value).value() : Json();
}

int64_t sum(const RgbImage& image) { return std::accumulate(image.pixels.begin(), image.pixels.end(), int64_t{0}); }
std::string hash(const RgbImage& image) {
  return to_hex(sha256({image.pixels.data(), static_cast<size_t>(image.pixels.size())}));
}

TEST(Canvas, EqualsPillowUnderTheReleasedSettings) {
  struct Case {
    int64_t width, height, canvas_width, canvas_height, sum;
    const char* hash;
  };
  for (const Case& c : {Case{16, 12, 630, 476, 77050434, "c5298dfb943fc6c30a0988d647d9a0d9"},
                        Case{640, 480, 644, 490, 120682924, "f5c5807ee62cc535102c1d1639f13ea5"},
                        Case{1920, 1080, 1708, 966, 631010932, "c9a039b2755b3f1a5e4fa42f0c5ddd90"},
                        Case{100, 300, 322, 952, 117477397, "95fd1a2f05a4c692b5fa49a448c01a51"}}) {
    const Canvas canvas = make_canvas(make_test_image(c.width, c.height, 0), {});
    EXPECT_EQ(canvas.image.width, c.canvas_width);
    EXPECT_EQ(canvas.image.height, c.canvas_height);
    EXPECT_EQ(sum(canvas.image), c.sum) << c.width << "x" << c.height;
    EXPECT_EQ(hash(canvas.image).substr(0, 32), c.hash) << c.width << "x" << c.height;
  }
}

TEST(Canvas, EqualsPillowOnOddSizes) {
  const Json expected = read_json(DEEPINFER_TESTDATA "/images/expected.json");
  for (const Json& c : expected.find("resample")->as_array()) {
    const auto& in = c.find("in")->as_array();
    const auto& out = c.find("out")->as_array();
    const RgbImage image = make_test_image(in[0].as_int(), in[1].as_int(), static_cast<int>(c.find("k")->as_int()));
    const int64_t width = out[0].as_int(), height = out[1].as_int();
    EXPECT_EQ(hash(resample_bicubic(image, width, height)), c.find("resize")->find("sha256")->as_string())
        << to_json(c);
    if (const Json* pad = c.find("pad")) {
      EXPECT_EQ(hash(pad_to(image, width, height)), pad->find("sha256")->as_string()) << to_json(c);
    }
  }
}

TEST(Canvas, EqualsTheReferenceOnTheGoldenImages) {
  const auto golden = SafetensorsFile::read(DEEPINFER_TESTDATA "/model_a/golden/vision.safetensors");
  ASSERT_TRUE(golden.ok()) << golden.status().message();
  const Json noise = read_json(DEEPINFER_TESTDATA "/model_a/golden/noise.json");
  for (int k = 0; k < 3; ++k) {
    const std::string name = "img" + std::to_string(k);
    const auto size = golden.value().integers(name + ".size_wh");
    ASSERT_TRUE(size.ok());
    const Canvas canvas = make_canvas(make_test_image(size.value()[0], size.value()[1], k), model_a_plan_config());
    const Json::Array& want = noise.find("canvas")->find(name)->as_array();
    EXPECT_EQ(canvas.image.height, want[0].as_array()[0].as_int());
    EXPECT_EQ(canvas.image.width, want[0].as_array()[1].as_int());
    EXPECT_EQ(sum(canvas.image), want[1].as_int());
    EXPECT_EQ(hash(canvas.image), want[2].as_string());
    const auto grid = golden.value().integers(name + ".grid");
    ASSERT_TRUE(grid.ok());
    EXPECT_EQ(canvas.plan.patch_rows(14), grid.value()[0]);
    EXPECT_EQ(canvas.plan.patch_columns(14), grid.value()[1]);
    EXPECT_EQ(canvas.plan.grid_rows, grid.value()[2]);
    EXPECT_EQ(canvas.plan.grid_columns, grid.value()[3]);
    if (const TensorInfo* stored = golden.value().find(name + ".canvas")) {
      const auto bytes = golden.value().bytes(*stored);
      ASSERT_EQ(static_cast<int64_t>(bytes.size()), canvas.image.pixels.size());
      EXPECT_EQ(std::memcmp(bytes.data(), canvas.image.pixels.data(), bytes.size()), 0);
    }
  }
}

TEST(Canvas, DigestTellsShapesOfEqualBytesApart) {
  ImagePlanConfig config;
  config.min_pixels = 1;
  const RgbImage wide(56, 14), tall(14, 56);  // all black: the bytes are the same
  EXPECT_EQ(make_canvas(wide, config).digest, make_canvas(wide, config).digest);
  EXPECT_NE(make_canvas(wide, config).digest, make_canvas(tall, config).digest);
}

TEST(Canvas, StretchesInsteadOfPaddingBeyondTheLargestRatio) {
  ImagePlanConfig config;
  config.max_wh_ratio = 2;
  const RgbImage image = make_test_image(400, 100, 1);
  const Canvas canvas = make_canvas(image, config);
  EXPECT_TRUE(canvas.plan.stretches);
  EXPECT_EQ(hash(canvas.image), hash(resample_bicubic(image, canvas.plan.canvas_width, canvas.plan.canvas_height)));
}

}  // namespace
}  // namespace deepinfer
