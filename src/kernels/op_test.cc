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
  EXPECT_STREQ(resolve<NormParams>("norm", rows, {Backend::kCuda, CpuLevel::kRef}).value().name, "ref");
}

TEST(Resolve, SaysWhatWasNeededAndWhatIsOffered) {
  const KernelRow<NormParams> rows[] = {{"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512", nullptr}};
  EXPECT_EQ(resolve<NormParams>("norm", rows, {Backend::kCpu, CpuLevel::kAvx2}).status().message(),
            "norm: needed backend cpu at level avx2; rows offered: cpu/avx512 (avx512)");
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

}  // namespace deepinfer
