// SPDX-License-Identifier: MIT
// What a shard server is asked and answers, as heads of frames (net/frame.h). Bulk bytes are bodies. Thread: values.
//
//   read   segment u64 | offset u64 | bytes u32     -> reply, body: the bytes, fewer at the end of the segment
//   write  segment u64 | offset u64                 body: whole pages      -> reply
//   drop   segment u64                              -> reply
//   list                                            -> reply, body: (segment u64, bytes u64)...
//   space                                           -> reply, body: total u64 | free u64
//   reply  status u8 | queue depth u32 | message
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/driver.h"

namespace deepinfer {

enum class ShardRequestType : uint16_t { kRead = 16, kWrite, kDrop, kList, kSpace };

struct ShardRequest {
  SegmentId segment{};
  int64_t offset = 0, num_bytes = 0;
};
inline constexpr int64_t kShardRequestBytesMax = int64_t{64} << 20;

std::string encode_shard_request(ShardRequestType type, const ShardRequest& request);
// Errors: invalid_argument (an unknown type, a head of another length, an offset or length that no segment has).
Result<ShardRequest> decode_shard_request(uint16_t type, std::string_view head);

struct ShardAnswer {
  Status status;
  int64_t queue_depth = 0;
};
std::string encode_shard_answer(const ShardAnswer& answer);
// A damaged answer has the status that says so.
ShardAnswer decode_shard_answer(std::string_view head);

std::vector<uint8_t> encode_segment_files(std::span<const SegmentFile> files);
Result<std::vector<SegmentFile>> decode_segment_files(std::span<const uint8_t> bytes);

}  // namespace deepinfer
