// SPDX-License-Identifier: MIT
// Which extents exist and where, in memory (serving.md 9.6, decision 13). An extent is found by the key of its first
// block; its other blocks are 16-bit fingerprints (a false match, 2^-16 a block, is caught by the whole keys in the
// row's header). Extents never cross a multiple of 32 blocks of their sequence, so the extent of an aligned block tells
// whether its 32-block cell exists: the end of a prefix is found by galloping over cells, then every cell before it is
// checked, because time can remove one from the middle. 110 bytes an extent. Thread: one owner.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "store/extent.h"
#include "store/store_miss.h"

namespace deepinfer {

// One extent as the index, a segment's footer and the checkpoint hold it.
struct ExtentRecord {
  BlockKey key;  // of the first block (record_key() of it for tail and full records)
  SegmentId segment{};
  uint32_t offset_pages = 0;
  uint32_t block_bytes = 0;
  uint32_t fast_replay_mask = 0;
  uint8_t num_blocks = 0;
  RecordKind kind = RecordKind::kBlocks;
  std::array<uint16_t, kExtentBlocks> fingerprints{};
  bool operator==(const ExtentRecord&) const = default;
};
uint16_t fingerprint_of(const BlockKey& key);
ExtentRecord record_of(const RowHeader& header);
uint64_t place_of(const ExtentRecord& record);  // hash of segment and offset

struct ExtentMatch {
  ExtentRecord record;
  int64_t first_block = 0;  // in the keys that were asked for; the extent's first block
  int64_t num_blocks = 0;   // of it that match
};

struct PrefixMatch {
  std::vector<ExtentMatch> extents;  // in order, without holes
  int64_t num_blocks = 0;
  int64_t num_probes = 0;               // of the table
  StoreMiss reason = StoreMiss::kNone;  // why it ends before the last key
};

class ExtentIndex {
 public:
  ExtentIndex();
  ~ExtentIndex();

  int64_t num_extents() const { return num_extents_; }
  int64_t num_blocks() const { return num_blocks_; }
  int64_t memory_bytes() const;

  // Publishes an extent. One with the same first key that holds no more blocks of the same chain is replaced; chains
  // that part inside stay side by side, at most kVariantsMax of them (the oldest goes).
  void insert(const ExtentRecord& record);
  // Longest prefix of `keys` (a chain from block 0 on) that is fully present.
  PrefixMatch longest_prefix(std::span<const BlockKey> keys, bool exact_only) const;
  // The same length without the list.
  int64_t prefix_blocks(std::span<const BlockKey> keys, bool exact_only) const;
  std::optional<ExtentRecord> find(RecordKind kind, const BlockKey& key) const;
  // Starting at block `at` of the chain: the extent there that matches most keys, up to the end of its cell.
  std::optional<ExtentMatch> match_at(std::span<const BlockKey> keys, int64_t at, bool exact_only) const;

  bool remove(const ExtentRecord& record, StoreMiss why);  // false when it is not (or no longer) the one published
  int64_t drop_segment(SegmentId segment, StoreMiss why);  // number of extents removed
  std::vector<ExtentRecord> records_of(SegmentId segment) const;
  // Why a key that is not here was here once; kNeverStored as far as is remembered (the last million removals).
  StoreMiss why_absent(const BlockKey& key) const;
  void remember_absent(const BlockKey& key, StoreMiss why);

  void check_invariants() const;  // aborts; O(size), for tests

  static constexpr int kVariantsMax = 4;

 private:
  struct Entry;
  struct Slot {
    uint32_t tag = 0;
    uint32_t entry = 0;  // 0 = empty; entries count from 1
  };
  struct Segment {
    SegmentId id{};
    uint32_t first_entry = 0;
    int64_t num_entries = 0;
  };

  Entry& entry(uint32_t number) const;
  size_t home(uint32_t tag) const { return static_cast<size_t>(tag >> (32 - slot_bits_)); }
  size_t next(size_t slot) const { return (slot + 1) & (slots_.size() - 1); }
  void prefetch_cells(std::span<const BlockKey> keys, int64_t first_cell, int64_t end_cell) const;
  int64_t fetch_cells(std::span<const BlockKey> keys) const;
  int64_t gallop(std::span<const BlockKey> keys, int64_t& num_probes) const;
  uint32_t best_variant(std::span<const BlockKey> keys, int64_t at, bool exact_only, int64_t& num_matching) const;
  bool contains(const BlockKey& key) const;
  bool make_room_for(const ExtentRecord& record);
  ExtentRecord record_at(uint32_t number) const;
  uint32_t allocate();
  uint32_t segment_number(SegmentId id);
  void link(uint32_t number);
  void unlink(uint32_t number);
  void erase_slot_of(uint32_t number);
  void grow();
  void place(Slot slot);

  int slot_bits_;
  std::vector<Slot> slots_;
  std::vector<std::unique_ptr<Entry[]>> pieces_;
  std::vector<uint32_t> free_entries_;
  uint32_t num_allocated_ = 0;
  std::vector<Segment> segments_;
  std::vector<uint32_t> free_segments_;
  std::unordered_map<uint64_t, uint32_t> segment_numbers_;
  std::vector<uint64_t> absences_;  // by hash: 56 bits of the key, 8 of the reason; made at the first removal
  int64_t num_extents_ = 0, num_blocks_ = 0;
};

}  // namespace deepinfer
