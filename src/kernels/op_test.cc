// SPDX-License-Identifier: MIT
#include "kernels/op.h"

#include <gtest/gtest.h>

#include "kernels/kernel_table.h"

namespace deepinfer {

TEST(Resolve, TakesTheLastRowThatFitsTheTarget) {
  const KernelRow<NormParams> rows[] = {{"ref", Backend::kRef, CpuLevel::kRef, "any machine", nullptr},
                                        {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2", nullptr},
                                        {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512", nullptr}};
  EXPECT_STREQ(resolve<NormParams>("norm", rows, {Backend::kCpu, CpuLevel::kRef}).value().name, "ref");
  EXPECT_STREQ(resolve<NormParams>("norm", rows, {Backend::kCpu, CpuLevel::kAvx2}).value().name, "cpu/avx2");
  EXPECT_STREQ(resolve<NormParams>("norm", rows, {Backend::kCpu, CpuLevel::kBf16}).value().name, "cpu/avx512");
}

TEST(Resolve, SaysWhatWasNeededAndWhatIsOffered) {
  const KernelRow<NormParams> rows[] = {{"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512", nullptr}};
  EXPECT_EQ(resolve<NormParams>("norm", rows, {Backend::kCpu, CpuLevel::kAvx2}).status().message(),
            "norm: needed backend cpu at level avx2; rows offered: cpu/avx512 (avx512)");
}

// The reference reads host memory, so it cannot serve a device.
TEST(Resolve, OnADeviceNeitherTheReferenceNorARowThatIsNotBuiltFits) {
  const KernelRow<NormParams> rows[] = {{"ref", Backend::kRef, CpuLevel::kRef, "any machine", nullptr},
                                        {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, "a GPU", nullptr}};
  EXPECT_EQ(resolve<NormParams>("norm", rows, {Backend::kCuda, CpuLevel::kRef}).status().message(),
            "norm: needed backend cuda; rows offered: ref (any machine), cuda/sm90 (a GPU; not in this build)");
}

TEST(KernelTable, ResolvesEveryOpAtEveryLevelOfThisMachine) {
  for (int level = 0; level <= static_cast<int>(machine_cpu_level()); ++level) {
    Result<KernelTable> table = KernelTable::resolve({Backend::kCpu, static_cast<CpuLevel>(level)});
    ASSERT_TRUE(table.ok()) << table.status().message();
    EXPECT_NE(table->linear.launch, nullptr);
    EXPECT_NE(table->describe().find("sparse_attention: "), std::string::npos);
  }
}

TEST(Scratch, GivesBackWhatAFrameTook) {
  Scratch scratch;
  uint8_t* first = nullptr;
  {
    const Scratch::Frame frame(scratch);
    first = scratch.take<uint8_t>(100);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(first) % 64, 0u);
    EXPECT_NE(scratch.take<float>(1), nullptr);
  }
  EXPECT_EQ(scratch.take<uint8_t>(3000000) != nullptr, true);
  const Scratch::Frame frame(scratch);
  EXPECT_NE(scratch.take<uint8_t>(10), first);
}

// Hand counts at released shapes: 640 entries (128 window rows of 528 bytes, 512 selected of 288) by 64 heads of 512.
TEST(Cost, OfAttentionCountsPackedRowsOnce) {
  std::vector<int32_t> zero = {0}, end = {5000}, selected(512);
  for (int32_t i = 0; i < 512; ++i) selected[static_cast<size_t>(i)] = i;
  const Cost cost = estimate(SparseAttentionParams{.q = {nullptr, {1, 64, 512}},
                                                   .window = 128,
                                                   .lane = {zero.data(), {1}},
                                                   .window_end = {end.data(), {1}},
                                                   .num_fresh = {zero.data(), {1}},
                                                   .selected = {selected.data(), {1, 512}},
                                                   .out = {nullptr, {1, 64, 512}}});
  EXPECT_EQ(cost.flops, 640.0 * 64 * 512 * 4);
  EXPECT_EQ(cost.bytes_read, 128.0 * 528 + 512.0 * 288 + 2 * 64 * 512);
  EXPECT_EQ(cost.bytes_written, 2.0 * 64 * 512);
}

// model.md 6: one expert is 35,389,440 parameters in 18,800,640 bytes.
TEST(Cost, OfOneExpertIsItsPackedBytes) {
  const uint8_t byte = 0;
  const ExpertMatrices expert = {Fp4Matrix{&byte, &byte, 2304, 5120}, Fp4Matrix{&byte, &byte, 2304, 5120},
                                 Fp4Matrix{&byte, &byte, 5120, 2304}};
  const std::vector<int32_t> begin = {0, 3};
  const Cost cost = estimate(ExpertsParams{
      .x = {nullptr, {3, 5120}}, .experts = {&expert, 1}, .begin = {begin.data(), {2}}, .out = {nullptr, {3, 5120}}});
  EXPECT_EQ(cost.bytes_read, 18800640.0 + 2 * 3 * 5120);
  EXPECT_EQ(cost.flops, 2.0 * 3 * 35389440);
}

TEST(Cost, OfIndexScoresCountsVisibleKeys) {
  const std::vector<int32_t> visible = {1000, 24};
  const Cost cost = estimate(IndexScoresParams{
      .q = {nullptr, {2, 32, 128}}, .num_visible = {visible.data(), {2}}, .scores = {nullptr, {2, 1000}}});
  EXPECT_EQ(cost.bytes_read, 1024.0 * 68 + 2 * 2 * 32 * 128);
  EXPECT_EQ(cost.flops, 1024.0 * 32 * (2 * 128 + 3));
}

// The mixing matrix of one site is 24 x 20480 fp32.
TEST(Cost, OfStreamMixReadsTheMatrixOnce) {
  const float value = 0;
  const Cost cost = estimate(StreamMixParams{.x = {nullptr, {1, 4, 5120}}, .fn = {&value, 24, 20480}});
  EXPECT_EQ(cost.bytes_read, 24.0 * 20480 * 4 + 20480 * 2);
}

}  // namespace deepinfer
