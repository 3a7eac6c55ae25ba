// SPDX-License-Identifier: MIT
#include "tensor/staged_tables.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tensor/second_heap.h"

namespace deepinfer {
namespace {

// Counts what is copied.
class CountingHeap final : public SecondHeap {
 public:
  void copy(void* to, const void* from, int64_t bytes) override {
    num_bytes += bytes;
    SecondHeap::copy(to, from, bytes);
  }
  int64_t num_bytes = 0;
};

TEST(StagedTables, AStepOfFewRowsBringsFewBytes) {
  CountingHeap device;
  StagedTables tables(device);
  Staged<int32_t> rows(tables, PerRow{1000});
  Staged<int64_t> pairs(tables, PerRow{1000, 2});
  Staged<uint8_t> fixed(tables, 40);
  tables.allocate();
  for (const int64_t num : {3, 1000, 17, 0}) {
    tables.lay_out(num);
    std::iota(rows.data(), rows.data() + num, static_cast<int32_t>(num));
    std::iota(pairs.data(), pairs.data() + 2 * num, num);
    std::iota(fixed.data(), fixed.data() + 40, uint8_t{1});
    device.num_bytes = 0;
    tables.upload();
    EXPECT_GE(device.num_bytes, 20 * num + 40);
    EXPECT_LE(device.num_bytes, 20 * num + 40 + 3 * 63);
    for (int64_t i = 0; i < num; ++i) EXPECT_EQ(rows.on_device()[i], num + i);
    for (int64_t i = 0; i < 2 * num; ++i) EXPECT_EQ(pairs.on_device()[i], num + i);
    for (int64_t i = 0; i < 40; ++i) EXPECT_EQ(fixed.on_device()[i], 1 + i);
  }
}

// Graphs hold addresses: equal numbers of rows give equal ones.
TEST(StagedTables, AddressesFollowFromTheNumberOfRows) {
  SecondHeap device;
  StagedTables tables(device);
  Staged<int32_t> first(tables, PerRow{100}), second(tables, PerRow{100});
  tables.allocate();
  tables.lay_out(50);
  const int32_t* at_fifty = second.on_device();
  tables.lay_out(3);
  EXPECT_NE(second.on_device(), at_fifty);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(second.on_device()) % 64, 0u);
  tables.lay_out(50);
  EXPECT_EQ(second.on_device(), at_fifty);
}

TEST(StagedTables, OnTheHostTheyStayWhereTheyAre) {
  StagedTables tables(host_device());
  Staged<int32_t> first(tables, PerRow{100}), second(tables, PerRow{100});
  tables.allocate();
  const int32_t* before = second.data();
  tables.lay_out(3);
  EXPECT_EQ(second.data(), before);
  EXPECT_EQ(second.on_device(), before);
}

}  // namespace
}  // namespace deepinfer
