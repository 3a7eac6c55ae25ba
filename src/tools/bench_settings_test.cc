// SPDX-License-Identifier: MIT
#include "tools/bench_settings.h"

#include <gtest/gtest.h>

#include "tensor/cpu_features.h"

namespace deepinfer {

TEST(BenchSettings, AValueThatNoBenchKnowsIsRefusedWithTheKnownOnes) {
  const Status status = check_bench_setting("backend", "foo");
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.message(), "--set backend=foo: expected one of cpu, cuda");
  EXPECT_FALSE(check_bench_setting("numerics", "").ok());
  EXPECT_FALSE(check_bench_setting("level", "avx3").ok());
}

TEST(BenchSettings, ALevelIsTakenWhereTheMachineHasIt) {
  for (const CpuLevel level :
       {CpuLevel::kRef, CpuLevel::kAvx2, CpuLevel::kAvx512, CpuLevel::kVnni, CpuLevel::kBf16, CpuLevel::kAmx})
    EXPECT_EQ(check_bench_setting("level", to_string(level)).ok(), level <= machine_cpu_level()) << to_string(level);
  EXPECT_TRUE(check_bench_setting("level", "auto").ok());
}

TEST(BenchSettings, KeysOfABenchsOwnPass) { EXPECT_TRUE(check_bench_setting("file", "/tmp/table").ok()); }

}  // namespace deepinfer
