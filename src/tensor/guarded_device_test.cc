// SPDX-License-Identifier: MIT
#include "tensor/guarded_device.h"

#include <gtest/gtest.h>

#include "tensor/buffer.h"
#include "tensor/second_heap.h"

namespace deepinfer {
namespace {

std::unique_ptr<Device> guarded(bool checks_each_op = false) {
  return guard_memory(std::make_unique<SecondHeap>(), {.checks_each_op = checks_each_op});
}

TEST(GuardedDevice, BuffersAreZeroedAlignedAndMayBeWrittenToTheirEnds) {
  const auto device = guarded();
  for (const int64_t bytes : {1, 63, 64, 1000, 100000}) {
    Buffer<uint8_t> buffer(device->memory(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
    EXPECT_EQ(std::count(buffer.begin(), buffer.end(), 0), bytes);
    std::fill(buffer.begin(), buffer.end(), uint8_t{9});
    EXPECT_TRUE(device->wait().ok());
  }
  EXPECT_TRUE(device->status().ok());
}

TEST(GuardedDevice, NamesTheBufferAndThePlaceOfAWriteBehindIt) {
  const auto device = guarded();
  const Buffer<float> other(device->memory(), 7);
  const BufferName name("the scores");
  Buffer<float> scores(device->memory(), 10);
  device->fill(scores.data() + 11, 0, 2);
  const Status status = device->wait();
  EXPECT_EQ(status.message(), "memory: 2 bytes from byte 4 behind 'the scores' (buffer 2, 40 bytes) were overwritten");
  EXPECT_EQ(device->wait().message(), status.message()) << "a fault stays";
  EXPECT_EQ(device->status().message(), status.message());
}

TEST(GuardedDevice, SeesAWriteInFrontOfABuffer) {
  const auto device = guarded();
  Buffer<uint8_t> buffer(device->memory(), 3);
  buffer.data()[-2] = 1;
  EXPECT_EQ(device->wait().message(),
            "memory: 1 bytes from byte 1 in front of 'a buffer' (buffer 1, 3 bytes) were overwritten");
}

TEST(GuardedDevice, SeesThemWhenTheBufferIsReleased) {
  const auto device = guarded();
  {
    Buffer<uint8_t> buffer(device->memory(), 8);
    buffer.data()[8] = 1;
  }
  EXPECT_NE(device->status().message().find("byte 0 behind"), std::string::npos);
}

TEST(GuardedDevice, NamesTheOpWhereEachIsChecked) {
  const auto device = guarded(true);
  Buffer<uint8_t> buffer(device->memory(), 8);
  buffer.data()[7] = 1;
  device->launched("norm");
  EXPECT_TRUE(device->status().ok());
  buffer.data()[8] = 1;
  device->launched("linear");
  EXPECT_TRUE(device->status().message().ends_with("were overwritten, seen behind linear"))
      << device->status().message();
}

TEST(GuardedDevice, TheInnermostNameCounts) {
  const BufferName outer("outer");
  {
    const BufferName inner("inner");
    EXPECT_STREQ(BufferName::current(), "inner");
  }
  EXPECT_STREQ(BufferName::current(), "outer");
}

}  // namespace
}  // namespace deepinfer
