// SPDX-License-Identifier: MIT
// Rebuilds index and segments from what the devices hold (decision 13): the newest checkpoint for the segments it
// names, footers for sealed ones, row headers for unsealed ones, which are then sealed. And writes that checkpoint.
// Thread: one caller.
#pragma once

#include <unordered_set>

#include "store/block_store.h"

namespace deepinfer {

// Ids below this are checkpoints, by number.
inline constexpr uint64_t kCheckpointIds = uint64_t{1} << 24;

struct Recovered {
  std::vector<SegmentState> segments;  // all sealed
  std::vector<BlockKey> pins;
  std::vector<uint64_t> deleted_tenants;
  uint64_t checkpoint_number = 0;  // the highest seen
  StoreRecovery report;
};

// Extents go into `index` as they are found. Errors: unavailable when fewer devices answer than decoding needs.
Result<Recovered> recover_store(const ExtentDevices& io, std::span<const PlacementGroup> groups, ExtentIndex& index);

struct IndexCheckpoint {
  std::vector<SegmentState> segments;
  std::vector<ExtentRecord> records;
  std::vector<BlockKey> pins;
  std::vector<uint64_t> deleted_tenants;
};
std::vector<uint8_t> encode_checkpoint(const IndexCheckpoint& checkpoint);
// Errors: corruption, unimplemented (another layout version).
Result<IndexCheckpoint> decode_checkpoint(std::span<const uint8_t> bytes);
// On the first three devices (or all there are); then drops older ones. Errors: unavailable when none took it.
Status write_checkpoint(const ExtentDevices& io, uint64_t number, const IndexCheckpoint& checkpoint);

}  // namespace deepinfer
