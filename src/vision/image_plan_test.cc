// SPDX-License-Identifier: MIT
// Expected values: the official serving side's resize vectors (dspark-vision.md 3.2) and tables recorded by running the
// published reference (testdata/units/image_plan.safetensors).
#include "vision/image_plan.h"

#include <gtest/gtest.h>

#include "tensor/safetensors.h"

namespace deepinfer {
namespace {

struct Vector {
  int64_t width, height, num_tokens, canvas_width, canvas_height, grid_rows, grid_columns;
};

constexpr Vector kOfficialVectors[] = {
    {978, 479, 302, 980, 490, 12, 24},     {640, 480, 206, 644, 490, 12, 16},
    {1, 1, 184, 546, 546, 13, 13},         {1920, 1080, 968, 1708, 966, 23, 41},
    {1080, 1920, 986, 966, 1708, 41, 23},  {3024, 4032, 1010, 1134, 1512, 36, 27},
    {8192, 8192, 994, 1302, 1302, 31, 31}, {2, 165, 356, 70, 4942, 118, 2},
    {165, 2, 240, 4942, 70, 2, 118},       {158, 10000, 762, 126, 7966, 190, 3},
    {10000, 158, 962, 10010, 168, 4, 239}, {16809, 11841, 990, 1540, 1092, 26, 37},
    {272, 300, 198, 518, 574, 14, 13},     {40, 50, 197, 490, 616, 15, 12},
    {1920, 330, 378, 1932, 336, 8, 46},    {1033, 141, 187, 1484, 210, 5, 36},
    {125, 751, 226, 224, 1344, 32, 6},     {743, 870, 401, 756, 882, 21, 18},
    {448, 336, 194, 630, 476, 12, 15},     {1024, 1024, 652, 1036, 1036, 25, 25},
};

void expect_plan(const ImagePlan& plan, const Vector& want) {
  const auto where = testing::Message() << want.width << "x" << want.height;
  EXPECT_EQ(plan.num_tokens, want.num_tokens) << where;
  EXPECT_EQ(plan.canvas_width, want.canvas_width) << where;
  EXPECT_EQ(plan.canvas_height, want.canvas_height) << where;
  EXPECT_EQ(plan.grid_rows, want.grid_rows) << where;
  EXPECT_EQ(plan.grid_columns, want.grid_columns) << where;
}

void expect_table(const char* name, const ImagePlanConfig& config) {
  const auto file = SafetensorsFile::read(DEEPINFER_TESTDATA "/units/image_plan.safetensors");
  ASSERT_TRUE(file.ok()) << file.status().message();
  const auto table = file.value().integers(name);
  ASSERT_TRUE(table.ok());
  constexpr size_t kColumns = 7;  // w, h, token rows, token columns, canvas h, canvas w, tokens
  ASSERT_GT(table.value().size() / kColumns, 200u);
  for (size_t i = 0; i < table.value().size(); i += kColumns) {
    const int64_t* row = table.value().data() + i;
    expect_plan(plan_image(row[0], row[1], config), {row[0], row[1], row[6], row[5], row[4], row[2], row[3]});
  }
}

TEST(ImagePlan, GivesTheOfficialVectors) {
  for (const Vector& want : kOfficialVectors) expect_plan(plan_image(want.width, want.height, {}), want);
}

TEST(ImagePlan, EqualsTheReferenceOnItsRecordedSizes) { expect_table("plan", {}); }

TEST(ImagePlan, ClampsTheWidthAloneBeyondTheLargestRatio) {
  ImagePlanConfig config;
  config.max_wh_ratio = 3;
  expect_table("plan_wh_ratio3", config);
  EXPECT_TRUE(plan_image(300, 100, config).stretches);
  EXPECT_FALSE(plan_image(299, 100, config).stretches);
  EXPECT_FALSE(plan_image(10, 1000, config).stretches);
}

// One cell across is the least; the span never passes the limit (single pass: 13x4871 is a case where a second pass
// differs).
TEST(ImagePlan, KeepsExtremeShapesWithinTheTokenLimit) {
  EXPECT_EQ(plan_image(1, 60000, {}).canvas_height, 21462);
  EXPECT_EQ(plan_image(60000, 1, {}).canvas_width, 42882);
  EXPECT_EQ(plan_image(13, 4871, {}).canvas_height, 10542);
  for (int64_t width = 1; width < 9000; width = width * 3 / 2 + 1)
    for (int64_t height = 1; height < 9000; height = height * 4 / 3 + 1) {
      const ImagePlan plan = plan_image(width, height, {});
      EXPECT_LE(plan.num_tokens, 1024) << width << "x" << height;
      EXPECT_GE(plan.grid_rows, 1);
      EXPECT_GE(plan.grid_columns, 1);
      EXPECT_EQ(plan.canvas_width % 14 + plan.canvas_height % 14, 0);
    }
}

}  // namespace
}  // namespace deepinfer
