// SPDX-License-Identifier: MIT
// The released model's inventory, sizes and memory against the specification's totals (model.md 2, 4.6, 5.1, 6).
#include "model/model_size.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "model/memory_plan.h"

namespace deepinfer {
namespace {

ModelConfig released() {
  return parse_model_config(read_file(DEEPINFER_TESTDATA "/released/config.json").value()).value();
}
ModelSize size_of(const ModelConfig& config) {
  WeightViews nowhere;
  return measure_model(config, declare_weights(config, nowhere));
}
constexpr int64_t kGigabyte = 1'000'000'000;

TEST(ModelSize, CountsTheReleasedTensorsAndBytes) {
  const ModelSize size = size_of(released());
  EXPECT_EQ(size.total.num_tensors, 96085);
  EXPECT_EQ(size.total.bytes, 510286023000);
  EXPECT_EQ(size.total.parameters, 763205315794);
  EXPECT_EQ(size.part(WeightPart::kDraft).num_tensors, 2401);
  EXPECT_EQ(size.part(WeightPart::kVision).num_tensors, 266);
}

TEST(ModelSize, SplitsTheReleasedParametersByPart) {
  const ModelSize size = size_of(released());
  const auto expect = [&](WeightPart part, int64_t parameters, int64_t bytes) {
    EXPECT_EQ(size.part(part).parameters, parameters) << to_string(part);
    EXPECT_EQ(size.part(part).bytes, bytes) << to_string(part);
  };
  expect(WeightPart::kExperts, 543581798400, 288777830400);
  expect(WeightPart::kAttention, 5064696320, 5069721600);
  expect(WeightPart::kSharedExperts, 1415577600, 1416960000);
  expect(WeightPart::kEmbed, 661913600, 1323827200);
  expect(WeightPart::kHead, 661913600, 1323827200);
  expect(WeightPart::kRouter, 78673920, 157409280);
  expect(WeightPart::kCompressorAndIndexer, 61868544, 81835008);
  expect(WeightPart::kStreamMix, 39323760, 157295040);
  expect(WeightPart::kNorms, 414720, 829440);
  expect(WeightPart::kEngramTables, 196613849600, 202758032400);
  expect(WeightPart::kEngramLinears, 314654720, 315043840);
  expect(WeightPart::kDraft, 14225362530, 7932874632);
  expect(WeightPart::kVision, 485268480, 970536960);
  EXPECT_EQ(size.backbone_parameters, 551566180464);
}

TEST(ModelSize, CountsActiveParametersAndTheBytesOfOneToken) {
  const ModelConfig config = released();
  const ModelSize size = size_of(config);
  EXPECT_EQ(size.decode_parameters, 16130583664);
  EXPECT_EQ(size.prefill_parameters, 7895563064);
  // 7,199,094,208 dense without the final norm's 10,240, the head, 240 experts of 18,800,640, 48 Engram rows of 264.
  EXPECT_EQ(size.decode_bytes, 7199094208 - 10240 + 1323827200 + 240 * int64_t{18800640} + 12672);
  EXPECT_EQ(global_bytes_per_token(config), 890);
  EXPECT_EQ(packed_state_bytes(config), 2918424);  // decision 25
}

TEST(MemoryPlan, RefusesTheReleasedModelOnASmallMachineWithThePlan) {
  const ModelConfig config = released();
  const MemoryPlan plan =
      plan_memory(config, size_of(config), {.lanes = 2, .positions = 1048576}, {32 * kGigabyte, 24 * kGigabyte})
          .value();
  EXPECT_FALSE(plan.fits());
  EXPECT_EQ(plan.disk_bytes, 202758032400);
  EXPECT_EQ(plan.lane_bytes, 43 * int64_t{192} * 528 + 3 * int64_t{16} * 4096);  // rings of 192 slots, tails of 16
  EXPECT_EQ(plan.resident_bytes, 510286023000 - 202758032400 + 933232640 + 2 * plan.lane_bytes);
  const Status status = check_fits(plan);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  for (const char* words :
       {"308.47 GB are needed", "24.00 GB are available", "routed experts", "288.78 GB", "global KV of 1048576 tokens"})
    EXPECT_NE(status.message().find(words), std::string::npos) << words << "\n" << status.message();
}

TEST(MemoryPlan, LeavesEngramTablesOnDiskWhereOnlyTheRestFits) {
  const ModelConfig config = released();
  const MemoryPlan plan =
      plan_memory(config, size_of(config), {.lanes = 1, .positions = 131072}, {400 * kGigabyte, 350 * kGigabyte})
          .value();
  EXPECT_TRUE(plan.fits());
  EXPECT_FALSE(plan.fits_whole());
  EXPECT_TRUE(check_fits(plan).ok());
  EXPECT_GT(plan.positions_left(config), 40'000'000);
}

TEST(MemoryPlan, KeepsSomeExpertsInMemoryWhereThatWasAskedFor) {
  const ModelConfig config = released();
  const MachineMemory machine{64 * kGigabyte, 60 * kGigabyte};
  const int64_t experts = 288'777'830'400;  // 40 layers x 384 x 18,800,640
  const auto plan = [&](ExpertMemory wanted) {
    return plan_memory(config, size_of(config), {.lanes = 1, .positions = 131072, .experts = wanted}, machine).value();
  };
  const MemoryPlan all = plan({});
  EXPECT_EQ(all.expert_bytes, 0);
  EXPECT_FALSE(check_fits(all).ok());
  EXPECT_NE(check_fits(all).message().find("--expert-memory"), std::string::npos);
  const MemoryPlan rest = plan({ExpertMemory::Kind::kFree});
  const int64_t others = all.resident_bytes - experts;
  EXPECT_EQ(rest.expert_bytes, machine.available_bytes - others - machine.total_bytes / 10);
  EXPECT_EQ(rest.resident_bytes, others + rest.expert_bytes);
  EXPECT_EQ(rest.disk_bytes, all.disk_bytes + experts - rest.expert_bytes);
  EXPECT_TRUE(check_fits(rest).ok());
  const MemoryPlan ten = plan({ExpertMemory::Kind::kBytes, 10 * kGigabyte});
  EXPECT_EQ(ten.expert_bytes, 10 * kGigabyte);
  EXPECT_EQ(plan({ExpertMemory::Kind::kBytes, 300 * kGigabyte}).expert_bytes, 0) << "all of them";
}

TEST(MemoryPlan, ReadsTheWantedExpertMemory) {
  EXPECT_EQ(parse_expert_memory("all").value().kind, ExpertMemory::Kind::kAll);
  EXPECT_EQ(parse_expert_memory("free").value().kind, ExpertMemory::Kind::kFree);
  EXPECT_EQ(parse_expert_memory("1.5").value().bytes, 1'500'000'000);
  for (const char* wrong : {"", "0", "-1", "x", "24GB", "nan", "inf", "1e9"})
    EXPECT_FALSE(parse_expert_memory(wrong).ok()) << wrong;
}

TEST(MemoryPlan, ReadsThisMachine) {
  const auto memory = read_machine_memory();
  ASSERT_TRUE(memory.ok()) << memory.status().message();
  EXPECT_GT(memory.value().total_bytes, 0);
  EXPECT_LE(memory.value().available_bytes, memory.value().total_bytes);
}

TEST(MemoryPlan, LooksForLimitsInItsOwnControlGroupAndThoseAbove) {
  const std::vector<std::string> none = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
  EXPECT_EQ(memory_limit_files(""), none);
  EXPECT_EQ(memory_limit_files("0::/\n"), none);
  EXPECT_EQ(memory_limit_files("nonsense\n4:memory\n::x\n"), none);
  EXPECT_EQ(memory_limit_files("0::/system.slice/serve.service"),
            (std::vector<std::string>{"/sys/fs/cgroup/system.slice/serve.service/memory.max",
                                      "/sys/fs/cgroup/system.slice/memory.max", none[0], none[1]}));
  EXPECT_EQ(memory_limit_files("9:cpu:/a\n4:memory:/b:c\n0::/\n"),
            (std::vector<std::string>{none[0], "/sys/fs/cgroup/memory/b:c/memory.limit_in_bytes", none[1]}));
}

}  // namespace
}  // namespace deepinfer
