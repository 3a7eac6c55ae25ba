// SPDX-License-Identifier: MIT
// The record of the store (decision 26). An extent is up to 32 consecutive blocks of one sequence, cut over k data
// shards: row j holds part j of block 0, part j of block 1, ... behind one 4 KiB header, so a prefix of the extent is a
// prefix of every row. Each row says all it must be checked by: where it stands, which blocks, whose, in which layout,
// the checksum of each part, of each whole block, and of itself.
//
//   row     = header [4096] | part of block 0 [part_bytes] | ... | zeros to a multiple of 4096
//   header  = fields in the order of encode_row_header | zeros | crc32c of the first 4092 bytes
//
// Bytes from a disk or a peer are outside bytes: decode_row_header refuses whatever is not exactly such a header.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/range.h"
#include "base/status.h"
#include "store/block_key.h"
#include "store/ttl.h"

namespace deepinfer {

inline constexpr int64_t kExtentBlocks = 32;
inline constexpr int64_t kPageBytes = 4096;  // alignment of everything on disk; the header is one page
inline constexpr int64_t kBlockBytesMax = int64_t{16} << 20;
inline constexpr uint32_t kStoreLayout = 1;  // version of everything in this file and in segment.h

enum class SegmentId : uint64_t {};

// What the payload is (serving.md 9.4). Tail and full records are extents of one block under a key of their own.
enum class RecordKind : uint8_t { kBlocks, kTail, kFull };
inline constexpr int kNumRecordKinds = 3;
BlockKey record_key(RecordKind kind, const BlockKey& key);

// Who may read the bytes and what they mean, as digests: a row of another scope is never delivered, whatever its key.
struct ScopeTags {
  uint64_t tenant = 0, model = 0;
  uint32_t cache_format = 0;
  bool operator==(const ScopeTags&) const = default;
};
ScopeTags scope_tags(const KeyScope& scope);

struct BlockStamp {
  BlockKey key;
  TokenId first_token = 0, last_token = 0;
  uint32_t block_crc = 0;                // of the whole block as stored (behind the cipher, if there is one)
  uint32_t part_crc = 0;                 // of this row's part of it
  std::array<uint8_t, 16> cipher_tag{};  // zeros without a cipher
};

struct RowHeader {
  SegmentId segment{};
  uint64_t offset = 0;  // of this row in the segment
  uint8_t shard = 0, num_data_shards = 1, num_parity_shards = 0;
  RecordKind kind = RecordKind::kBlocks;
  TtlClass ttl_class = TtlClass::kChat;
  uint8_t cipher = 0;  // 0 none, 1 AES-256-GCM
  uint32_t block_bytes = 0;
  uint32_t first_block = 0;       // its place in the sequence, in blocks
  uint32_t fast_replay_mask = 0;  // bit i: block i was computed behind a fast replay
  ScopeTags scope;
  std::array<uint8_t, 12> nonce{};
  std::vector<BlockStamp> blocks;  // 1 to 32

  int num_shards() const { return num_data_shards + num_parity_shards; }
  int64_t num_blocks() const { return static_cast<int64_t>(blocks.size()); }
};

// Part of a block on one shard: the block's bytes over k, rounded up to 64 (zero padded).
constexpr int64_t part_bytes_of(int64_t block_bytes, int num_data_shards) {
  return round_up(ceil_div<int64_t>(block_bytes, num_data_shards), int64_t{64});
}
// Bytes of a row that holds the first n blocks, in whole pages: 364,544 + 4,096 for a full extent of Flash on 10 + 2.
constexpr int64_t row_bytes_of(int64_t num_blocks, int64_t part_bytes) {
  return round_up(kPageBytes + num_blocks * part_bytes, kPageBytes);
}

void encode_row_header(const RowHeader& header, std::span<uint8_t> page);
// Errors: not_found (no header stands here), unimplemented (another layout version), corruption.
Result<RowHeader> decode_row_header(std::span<const uint8_t> page);

}  // namespace deepinfer
