// SPDX-License-Identifier: MIT
// Reads and writes one or many extents on the shards of their groups. A read asks as HedgePolicy says, checks every row
// it gets (header, place, scope, keys, checksum of each part) before a byte of it is used, treats a damaged row as
// missing, decodes from the first k good ones, and checks each whole block again. So it delivers right bytes or a
// reason, never wrong ones. A write counts once enough shards have it. Thread: any; calls block their own caller only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/clock.h"
#include "store/driver.h"
#include "store/erasure.h"
#include "store/hedge.h"
#include "store/index.h"

namespace deepinfer {

// Everything that I/O on extents needs, owned by the store and outliving it.
struct ExtentDevices {
  std::span<const std::unique_ptr<ShardDevice>> devices;
  const ErasureCode& code;
  HedgePolicy& hedge;
  const Clock& clock;
  int64_t read_timeout_ns = 2'000'000'000;
  int64_t write_timeout_ns = 10'000'000'000;
  int extents_in_flight_max = 16;
};

struct ExtentRead {
  ExtentRecord record;
  PlacementGroup group;
  std::span<const BlockKey> keys;  // of the blocks wanted, from the extent's first on; at most the record's
  ScopeTags scope;
  std::span<uint8_t> out;  // keys.size() blocks of record.block_bytes, as stored
  // Maintenance, which knows neither keys nor scope: all blocks of the record, as the rows themselves name them; `keys`
  // and `scope` are not looked at, `out` is record.num_blocks blocks.
  bool whole = false;

  int64_t num_blocks() const { return whole ? record.num_blocks : static_cast<int64_t>(keys.size()); }
};

struct ExtentReadResult {
  int64_t num_blocks = 0;               // delivered; the rest of `out` means nothing
  StoreMiss reason = StoreMiss::kNone;  // why fewer than asked
  std::optional<RowHeader> header;      // of one good row: cipher, nonce, tags, masks
  uint32_t damaged_shards = 0;          // bit per shard: a row was there and is wrong
  uint32_t missing_shards = 0;          // bit per shard: answered that it has no such row
  uint32_t silent_shards = 0;           // bit per shard: no answer (dead, or too slow to matter)
  int num_requests = 0;
  bool hedged_late = false;
};

// Results in the order of `reads`; several extents are under way at once.
std::vector<ExtentReadResult> read_extents(const ExtentDevices& io, std::span<const ExtentRead> reads);

struct ExtentWrite {
  RowHeader header;  // without shard and checksums, which are filled in
  PlacementGroup group;
  std::span<const uint8_t> blocks;  // header.num_blocks() blocks of header.block_bytes
  int min_acks = 1;
};

struct ExtentWriteResult {
  Status status;  // ok: acknowledged by at least min_acks shards
  int num_acks = 0;
  std::vector<std::vector<uint32_t>> part_crcs;  // per shard, per block: for the footer
};

std::vector<ExtentWriteResult> write_extents(const ExtentDevices& io, std::span<const ExtentWrite> writes);

// Writes `bytes` (whole pages) at the same place of every shard of a group and waits for all that answer in time.
// Returns the number of acknowledgements. `bytes(shard)` makes each shard's own.
int write_to_group(const ExtentDevices& io, const PlacementGroup& group, SegmentId segment, int64_t offset,
                   const std::function<std::vector<uint8_t>(int shard)>& bytes);

// Every byte of a row as it should be? For scrubbing.
bool row_is_whole(const ErasureCode& code, const ExtentRecord& record, int shard, const PageBuffer& row);

// Rows of `header`'s extent, one a shard, ready to be written. The checksums in header.blocks are filled in.
std::vector<PageBuffer> encode_rows(const ErasureCode& code, RowHeader& header, std::span<const uint8_t> blocks,
                                    std::vector<std::vector<uint32_t>>& part_crcs);

}  // namespace deepinfer
