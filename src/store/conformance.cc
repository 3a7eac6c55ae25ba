// SPDX-License-Identifier: MIT
#include "store/conformance.h"

#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <future>

#include "base/philox.h"
#include "store/block_store.h"

namespace deepinfer {
namespace {

constexpr SegmentId kSegment{0x77000000000001};
constexpr int64_t kRow = 90 * kPageBytes;  // a full row of Flash

#define EXPECT_THAT(condition)                                       \
  do {                                                               \
    if (!(condition)) return internal_error("expected " #condition); \
  } while (0)

PageBuffer pattern(int64_t num_bytes, uint64_t seed) {
  PageBuffer buffer = PageBuffer::of(num_bytes);
  Rng rng(seed);
  for (int64_t i = 0; i + 4 <= num_bytes; i += 4) {
    const uint32_t word = rng.next_u32();
    std::memcpy(buffer.data() + i, &word, 4);
  }
  return buffer;
}

bool is_pattern(const PageBuffer& buffer, int64_t num_bytes, uint64_t seed) {
  return std::memcmp(buffer.data(), pattern(num_bytes, seed).data(), static_cast<size_t>(num_bytes)) == 0;
}

Status reads_what_was_written(const OpenDevices& open, const Clock&) {
  ASSIGN_OR_RETURN(const auto devices, open());
  for (const auto& device : devices) {
    TRY(write_now(*device, kSegment, 0, pattern(kRow, 1), kRow));
    ASSIGN_OR_RETURN(const PageBuffer all, read_now(*device, kSegment, 0, kRow));
    EXPECT_THAT(is_pattern(all, kRow, 1));
    ASSIGN_OR_RETURN(const PageBuffer piece, read_now(*device, kSegment, 2 * kPageBytes, kPageBytes));
    EXPECT_THAT(std::memcmp(piece.data(), all.data() + 2 * kPageBytes, kPageBytes) == 0);
    TRY(device->drop(kSegment));
  }
  return {};
}

Status takes_rows_in_any_order_and_again(const OpenDevices& open, const Clock&) {
  ASSIGN_OR_RETURN(const auto devices, open());
  for (const auto& device : devices) {
    TRY(write_now(*device, kSegment, 2 * kRow, pattern(kRow, 3), kRow));
    TRY(write_now(*device, kSegment, 0, pattern(kRow, 9), kRow));
    TRY(write_now(*device, kSegment, kRow, pattern(kRow, 2), kRow));
    TRY(write_now(*device, kSegment, 0, pattern(kRow, 1), kRow));
    for (uint64_t i = 0; i < 3; ++i) {
      ASSIGN_OR_RETURN(const PageBuffer row, read_now(*device, kSegment, static_cast<int64_t>(i) * kRow, kRow));
      EXPECT_THAT(is_pattern(row, kRow, i + 1));
    }
    TRY(device->drop(kSegment));
  }
  return {};
}

// Around the sizes at which a driver might split: offsets to beyond 64 MiB.
Status keeps_far_offsets(const OpenDevices& open, const Clock&) {
  ASSIGN_OR_RETURN(const auto devices, open());
  ShardDevice& device = *devices.front();
  for (int64_t mib = 31; mib <= 65; mib += 17) {
    const int64_t offset = (mib << 20) + (1 << 20) - 2 * kPageBytes;  // across the next MiB
    TRY(write_now(device, kSegment, offset, pattern(kRow, static_cast<uint64_t>(mib)), kRow));
    ASSIGN_OR_RETURN(const PageBuffer row, read_now(device, kSegment, offset, kRow));
    EXPECT_THAT(is_pattern(row, kRow, static_cast<uint64_t>(mib)));
  }
  ASSIGN_OR_RETURN(const auto files, device.list());
  EXPECT_THAT(files.size() == 1 && files[0].id == kSegment);
  EXPECT_THAT(files[0].num_bytes == (int64_t{66} << 20) - 2 * kPageBytes + kRow);
  TRY(device.drop(kSegment));
  ASSIGN_OR_RETURN(const auto left, device.list());
  EXPECT_THAT(left.empty());
  return {};
}

Status says_what_is_not_there(const OpenDevices& open, const Clock&) {
  ASSIGN_OR_RETURN(const auto devices, open());
  ShardDevice& device = *devices.front();
  EXPECT_THAT(read_now(device, kSegment, 0, kPageBytes).status().code() == StatusCode::kNotFound);
  TRY(device.drop(kSegment));
  TRY(write_now(device, kSegment, 0, pattern(kPageBytes, 1), kPageBytes));
  EXPECT_THAT(read_now(device, kSegment, 0, 2 * kPageBytes).status().code() == StatusCode::kNotFound);  // a short read
  EXPECT_THAT(read_now(device, kSegment, 10 * kPageBytes, kPageBytes).status().code() == StatusCode::kNotFound);
  return device.drop(kSegment);
}

Status answers_many_at_once(const OpenDevices& open, const Clock&) {
  constexpr int64_t kRows = 64;
  std::vector<std::promise<DeviceReply>> promises(kRows);  // outlive the device, whose threads end them
  ASSIGN_OR_RETURN(const auto devices, open());
  ShardDevice& device = *devices.front();
  for (int64_t i = 0; i < kRows; ++i)
    TRY(write_now(device, kSegment, i * kRow, pattern(kRow, static_cast<uint64_t>(i)), kRow));
  std::vector<DeviceOperation> operations;
  for (int64_t i = 0; i < kRows; ++i)
    operations.push_back(device.read(kSegment, i * kRow, kRow, PageBuffer::of(kRow), [&promises, i](DeviceReply reply) {
      promises[static_cast<size_t>(i)].set_value(std::move(reply));
    }));
  for (int64_t i = 0; i < kRows; i += 2) device.cancel(operations[static_cast<size_t>(i)]);
  for (int64_t i = 0; i < kRows; ++i) {
    const DeviceReply reply = promises[static_cast<size_t>(i)].get_future().get();  // every one, cancelled or not
    if (reply.status.ok() && !reply.buffer.empty() && reply.num_bytes == kRow)
      EXPECT_THAT(is_pattern(reply.buffer, kRow, static_cast<uint64_t>(i)));
    if (i % 2 == 1) EXPECT_THAT(reply.status.ok() && reply.num_bytes == kRow);
  }
  return device.drop(kSegment);
}

// A read is taken back from inside its own end, as a hedge does that has just seen the tenth shard.
Status takes_back_what_has_ended(const OpenDevices& open, const Clock&) {
  constexpr size_t kReads = 64;
  std::vector<std::promise<DeviceOperation>> names(kReads);  // outlive the device, whose threads end them
  std::vector<std::promise<void>> ends(kReads);
  ASSIGN_OR_RETURN(const auto devices, open());
  ShardDevice& device = *devices.front();
  TRY(write_now(device, kSegment, 0, pattern(kRow, 1), kRow));
  for (size_t i = 0; i < kReads; ++i) {
    const auto take_back = [&device, &names, &ends, i](const DeviceReply&) {
      auto name = names[i].get_future();
      if (name.wait_for(std::chrono::seconds(0)) == std::future_status::ready) device.cancel(name.get());
      ends[i].set_value();
    };
    names[i].set_value(device.read(kSegment, 0, kRow, PageBuffer::of(kRow), take_back));
  }
  for (std::promise<void>& end : ends) end.get_future().wait();
  return device.drop(kSegment);
}

// Every operation ends exactly once, also those that are under way when their device goes.
Status ends_what_is_under_way(const OpenDevices& open, const Clock&) {
  constexpr int kReads = 64;
  std::atomic<int> num_done{0};
  {
    ASSIGN_OR_RETURN(auto devices, open());
    TRY(write_now(*devices.front(), kSegment, 0, pattern(kRow, 1), kRow));
    for (int i = 0; i < kReads; ++i)
      devices.front()->read(kSegment, 0, kRow, PageBuffer::of(kRow), [&num_done](DeviceReply) { ++num_done; });
    devices.clear();
  }
  EXPECT_THAT(num_done == kReads);
  ASSIGN_OR_RETURN(const auto again, open());
  return again.front()->drop(kSegment);
}

Status keeps_blocks_over_a_restart(const OpenDevices& open, const Clock& clock) {
  constexpr int64_t kBlocks = 100, kBytes = 113'920;
  std::vector<TokenId> tokens;
  for (TokenId i = 0; i < kBlocks * kBlockKeyTokens; ++i) tokens.push_back(i % 1000 + 1);
  const KeyScope scope{.tenant_salt = "conformance", .model_revision = "m"};
  const auto keys = BlockKeyChain(scope).extend(tokens);
  std::vector<uint8_t> bytes(static_cast<size_t>(kBlocks * kBytes));
  Rng rng(5);
  for (size_t i = 0; i < bytes.size(); i += 64) bytes[i] = static_cast<uint8_t>(rng.next_u32());
  for (int round = 0; round < 2; ++round) {
    ASSIGN_OR_RETURN(auto devices, open());
    StoreOptions options;
    if (devices.size() >= 12) {
      options.num_data_shards = 10;
      options.num_parity_shards = 2;
    }
    ASSIGN_OR_RETURN(const auto store, BlockStore::open(options, std::move(devices), clock));
    if (round == 0) {
      store->put({.scope = store->scope(scope), .keys = keys, .block_bytes = kBytes, .bytes = bytes, .tokens = tokens});
      store->flush();
    }
    EXPECT_THAT(store->lookup(store->scope(scope), keys, true).num_blocks == kBlocks);
    std::vector<uint8_t> out(bytes.size());
    const StoreGet got = store->get(
        {.scope = store->scope(scope), .keys = keys, .blocks = {0, kBlocks}, .block_bytes = kBytes, .tokens = tokens},
        out);
    if (got.num_blocks != kBlocks)
      return internal_error(
          fmt::format("{} of {} blocks came back: {}", got.num_blocks, kBlocks, to_string(got.reason)));
    EXPECT_THAT(out == bytes);
  }
  return {};
}

}  // namespace

std::vector<ConformanceCheck> conformance_checks() {
  return {{"reads what was written", reads_what_was_written},
          {"takes rows in any order, and again", takes_rows_in_any_order_and_again},
          {"keeps far offsets", keeps_far_offsets},
          {"says what is not there", says_what_is_not_there},
          {"answers many at once", answers_many_at_once},
          {"takes back what has just ended", takes_back_what_has_ended},
          {"ends what is under way when it goes", ends_what_is_under_way},
          {"keeps blocks over a restart", keeps_blocks_over_a_restart}};
}

}  // namespace deepinfer
