// SPDX-License-Identifier: MIT
#include "kernels/device_profile.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

// Point n is passed 10 n^2 ns from the first.
class SquareMarks final : public StreamMarks {
 public:
  void put() override { ++num_put_; }
  void clear() override { num_put_ = 0; }
  std::vector<double> gaps_ns() const override {
    std::vector<double> gaps;
    for (int n = 1; n < num_put_; ++n) gaps.push_back(10.0 * (n * n - (n - 1) * (n - 1)));
    return gaps;
  }

 private:
  int num_put_ = 0;
};

TEST(DeviceProfile, GivesEveryOpTheTimeFromThePointInFrontOfIt) {
  const auto kernels = KernelTable::resolve({Backend::kCpu});
  ASSERT_TRUE(kernels.ok());
  OpProfile profile;
  profile.device = std::make_shared<DeviceProfile>(kernels.value(), std::make_unique<SquareMarks>());
  const KernelTable marked = DeviceProfile::marked(kernels.value());
  Scratch scratch;
  const ExecutionContext context{nullptr, &scratch, &profile};
  const std::vector<uint8_t> rows = {1, 2, 3, 4};
  const std::vector<int32_t> source = {1, 0};
  std::vector<uint8_t> out(4);
  const auto gather = [&] {
    marked.gather_rows.launch(
        context, {.rows = {rows.data(), {2, 2}}, .source = {source.data(), {2}}, .out = {out.data(), {2, 2}}});
  };
  const std::vector<bf16> x(64), weight(64);
  std::vector<bf16> y(64);
  gather();
  EXPECT_EQ(out, (std::vector<uint8_t>{3, 4, 1, 2}));  // the op itself has run
  marked.norm.launch(context, {.x = {x.data(), {1, 64}}, .weight = {weight.data(), 64}, .out = {y.data(), {1, 64}}});
  gather();
  profile.device->passed("a copy");
  profile.device->read(profile);
  ASSERT_EQ(profile.ops.size(), 3u);
  EXPECT_EQ(profile.ops["gather_rows"].calls, 2);
  EXPECT_DOUBLE_EQ(profile.ops["gather_rows"].seconds, 60e-9);  // 10 and 50
  EXPECT_DOUBLE_EQ(profile.ops["norm 64"].seconds, 30e-9);
  EXPECT_DOUBLE_EQ(profile.ops["norm 64"].cost.bytes_read, 256);
  EXPECT_DOUBLE_EQ(profile.ops["a copy"].seconds, 70e-9);

  OpProfile second;
  profile.device->read(second);  // the same points passed once more, as by a graph
  EXPECT_DOUBLE_EQ(second.ops["norm 64"].seconds, 30e-9);
  profile.device->clear();
  gather();
  OpProfile third;
  profile.device->read(third);
  ASSERT_EQ(third.ops.size(), 1u);
  EXPECT_DOUBLE_EQ(third.ops["gather_rows"].seconds, 10e-9);
}

}  // namespace
}  // namespace deepinfer
