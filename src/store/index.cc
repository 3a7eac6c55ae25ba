// SPDX-License-Identifier: MIT
#include "store/index.h"

#include <algorithm>

#include "base/check.h"

namespace deepinfer {
namespace {

constexpr uint32_t kPieceEntries = 4096;
constexpr int kFirstSlotBits = 10;
constexpr size_t kAbsences = size_t{1} << 20;

uint32_t tag_of(const BlockKey& key) { return static_cast<uint32_t>(key.low >> 32); }
uint64_t absence_of(const BlockKey& key) { return key.high & ~uint64_t{0xff}; }
size_t absence_slot(const BlockKey& key) { return static_cast<size_t>(key.low) & (kAbsences - 1); }

}  // namespace

struct ExtentIndex::Entry {
  BlockKey key;
  uint32_t segment = 0;
  uint32_t offset_pages = 0;
  uint32_t previous = 0, next = 0;  // entries of the same segment; 0 = none
  uint32_t block_bytes = 0;
  uint32_t fast_replay_mask = 0;
  uint8_t num_blocks = 0;
  RecordKind kind = RecordKind::kBlocks;
  std::array<uint16_t, kExtentBlocks> fingerprints{};
};

uint16_t fingerprint_of(const BlockKey& key) { return static_cast<uint16_t>(key.high); }

uint64_t place_of(const ExtentRecord& record) {
  return (static_cast<uint64_t>(record.segment) * 0x9e3779b97f4a7c15) ^ record.offset_pages;
}

ExtentRecord record_of(const RowHeader& header) {
  ExtentRecord record{.key = record_key(header.kind, header.blocks[0].key),
                      .segment = header.segment,
                      .offset_pages = static_cast<uint32_t>(header.offset / kPageBytes),
                      .block_bytes = header.block_bytes,
                      .fast_replay_mask = header.fast_replay_mask,
                      .num_blocks = static_cast<uint8_t>(header.num_blocks()),
                      .kind = header.kind};
  for (size_t i = 0; i < header.blocks.size(); ++i) record.fingerprints[i] = fingerprint_of(header.blocks[i].key);
  return record;
}

ExtentIndex::ExtentIndex() : slot_bits_(kFirstSlotBits), slots_(size_t{1} << kFirstSlotBits) {
  segments_.emplace_back();  // 0 stays unused
}
ExtentIndex::~ExtentIndex() = default;

int64_t ExtentIndex::memory_bytes() const {
  return static_cast<int64_t>(slots_.size() * sizeof(Slot) + pieces_.size() * kPieceEntries * sizeof(Entry) +
                              free_entries_.capacity() * 4 + absences_.size() * 8);
}

ExtentIndex::Entry& ExtentIndex::entry(uint32_t number) const {
  return pieces_[(number - 1) / kPieceEntries][(number - 1) % kPieceEntries];
}

ExtentRecord ExtentIndex::record_at(uint32_t number) const {
  const Entry& e = entry(number);
  return {.key = e.key,
          .segment = segments_[e.segment].id,
          .offset_pages = e.offset_pages,
          .block_bytes = e.block_bytes,
          .fast_replay_mask = e.fast_replay_mask,
          .num_blocks = e.num_blocks,
          .kind = e.kind,
          .fingerprints = e.fingerprints};
}

uint32_t ExtentIndex::allocate() {
  if (!free_entries_.empty()) {
    const uint32_t number = free_entries_.back();
    free_entries_.pop_back();
    return number;
  }
  if (num_allocated_ % kPieceEntries == 0) pieces_.push_back(std::make_unique<Entry[]>(kPieceEntries));
  return ++num_allocated_;
}

uint32_t ExtentIndex::segment_number(SegmentId id) {
  const auto [at, is_new] = segment_numbers_.try_emplace(static_cast<uint64_t>(id), 0);
  if (!is_new) return at->second;
  if (free_segments_.empty()) {
    segments_.emplace_back();
    at->second = static_cast<uint32_t>(segments_.size() - 1);
  } else {
    at->second = free_segments_.back();
    free_segments_.pop_back();
  }
  segments_[at->second] = {.id = id};
  return at->second;
}

void ExtentIndex::link(uint32_t number) {
  Entry& e = entry(number);
  Segment& segment = segments_[e.segment];
  e.previous = 0;
  e.next = segment.first_entry;
  if (e.next) entry(e.next).previous = number;
  segment.first_entry = number;
  ++segment.num_entries;
  ++num_extents_;
  num_blocks_ += e.num_blocks;
}

void ExtentIndex::unlink(uint32_t number) {
  Entry& e = entry(number);
  Segment& segment = segments_[e.segment];
  if (e.previous) entry(e.previous).next = e.next;
  else segment.first_entry = e.next;
  if (e.next) entry(e.next).previous = e.previous;
  --segment.num_entries;
  --num_extents_;
  num_blocks_ -= e.num_blocks;
  free_entries_.push_back(number);
}

// Linear probing with the tag's upper bits as home, so that a slot can be moved without touching its entry.
void ExtentIndex::place(Slot slot) {
  size_t at = home(slot.tag);
  while (slots_[at].entry) at = next(at);
  slots_[at] = slot;
}

void ExtentIndex::grow() {
  if (static_cast<size_t>(num_extents_ + 1) * 10 < slots_.size() * 7) return;
  const std::vector<Slot> old = std::move(slots_);
  ++slot_bits_;
  slots_.assign(size_t{1} << slot_bits_, {});
  for (const Slot& slot : old)
    if (slot.entry) place(slot);
}

void ExtentIndex::erase_slot_of(uint32_t number) {
  size_t hole = home(tag_of(entry(number).key));
  while (slots_[hole].entry != number) hole = next(hole);
  for (size_t at = next(hole); slots_[at].entry; at = next(at)) {
    const size_t from_home = (at - home(slots_[at].tag)) & (slots_.size() - 1);
    const size_t from_hole = (at - hole) & (slots_.size() - 1);
    if (from_home < from_hole) continue;  // it would stand before its home
    slots_[hole] = slots_[at];
    hole = at;
  }
  slots_[hole] = {};
}

// False when what stands there is as good as the new one. Otherwise removes what the new one replaces.
bool ExtentIndex::make_room_for(const ExtentRecord& record) {
  const uint32_t tag = tag_of(record.key);
  uint32_t same = 0, oldest = 0;
  int num_variants = 0;
  for (size_t at = home(tag); slots_[at].entry; at = next(at)) {
    if (slots_[at].tag != tag) continue;
    const Entry& e = entry(slots_[at].entry);
    if (e.key != record.key) continue;
    ++num_variants;
    if (!oldest) oldest = slots_[at].entry;
    const size_t n = std::min(e.num_blocks, record.num_blocks);
    if (!std::equal(e.fingerprints.begin(), e.fingerprints.begin() + static_cast<int64_t>(n),
                    record.fingerprints.begin()))
      continue;
    if (e.num_blocks > record.num_blocks) return false;
    same = slots_[at].entry;
  }
  const uint32_t gone = same ? same : num_variants >= kVariantsMax ? oldest : 0;
  if (gone) {
    erase_slot_of(gone);
    unlink(gone);
  }
  return true;
}

void ExtentIndex::insert(const ExtentRecord& record) {
  CHECK(record.num_blocks >= 1 && record.num_blocks <= kExtentBlocks);
  if (!make_room_for(record)) return;
  grow();
  const uint32_t number = allocate();
  Entry& e = entry(number);
  e = {.key = record.key,
       .segment = segment_number(record.segment),
       .offset_pages = record.offset_pages,
       .block_bytes = record.block_bytes,
       .fast_replay_mask = record.fast_replay_mask,
       .num_blocks = record.num_blocks,
       .kind = record.kind,
       .fingerprints = record.fingerprints};
  link(number);
  place({tag_of(record.key), number});
}

bool ExtentIndex::contains(const BlockKey& key) const {
  const uint32_t tag = tag_of(key);
  for (size_t at = home(tag); slots_[at].entry; at = next(at))
    if (slots_[at].tag == tag && entry(slots_[at].entry).key == key) return true;
  return false;
}

// The extent that starts at `at` and gives most blocks, which for exact requests end before the first one behind a fast
// replay: 0 blocks when all variants begin with one.
uint32_t ExtentIndex::best_variant(std::span<const BlockKey> keys, int64_t at, bool exact_only,
                                   int64_t& num_matching) const {
  const BlockKey& key = keys[static_cast<size_t>(at)];
  const uint32_t tag = tag_of(key);
  const int64_t in_cell = std::min<int64_t>(kExtentBlocks - at % kExtentBlocks, static_cast<int64_t>(keys.size()) - at);
  uint32_t best = 0;
  num_matching = 0;
  for (size_t slot = home(tag); slots_[slot].entry; slot = next(slot)) {
    if (slots_[slot].tag != tag) continue;
    const Entry& e = entry(slots_[slot].entry);
    if (e.key != key || e.kind != RecordKind::kBlocks) continue;
    int64_t most = std::min<int64_t>(in_cell, e.num_blocks);
    if (exact_only && e.fast_replay_mask) most = std::min<int64_t>(most, __builtin_ctz(e.fast_replay_mask));
    int64_t n = std::min<int64_t>(most, 1);
    while (n < most && e.fingerprints[static_cast<size_t>(n)] == fingerprint_of(keys[static_cast<size_t>(at + n)])) ++n;
    if (best && n <= num_matching) continue;
    num_matching = n;
    best = slots_[slot].entry;
  }
  return best;
}

std::optional<ExtentMatch> ExtentIndex::match_at(std::span<const BlockKey> keys, int64_t at, bool exact_only) const {
  int64_t num_matching = 0;
  const uint32_t number = best_variant(keys, at, exact_only, num_matching);
  if (!number || num_matching == 0) return std::nullopt;
  return ExtentMatch{record_at(number), at, num_matching};
}

// Number of cells up to and with the last one found by probing 1, 2, 4, ... and then halving.
int64_t ExtentIndex::gallop(std::span<const BlockKey> keys, int64_t& num_probes) const {
  const int64_t num_cells = ceil_div<int64_t>(static_cast<int64_t>(keys.size()), kExtentBlocks);
  const auto has_cell = [&](int64_t cell) {
    ++num_probes;
    return contains(keys[static_cast<size_t>(cell * kExtentBlocks)]);
  };
  int64_t present = 0, absent = 1;  // cells known: [0, present) there, `absent - 1` not
  while (absent <= num_cells && has_cell(absent - 1)) {
    present = absent;
    absent *= 2;
  }
  absent = std::min(absent, num_cells + 1);
  while (present + 1 < absent) {
    const int64_t middle = (present + absent) / 2;
    (has_cell(middle - 1) ? present : absent) = middle;
  }
  return present;
}

// Cache lines of all cells are asked for before the first is looked at: memory answers many at a time.
void ExtentIndex::prefetch_cells(std::span<const BlockKey> keys, int64_t first_cell, int64_t end_cell) const {
  for (int64_t cell = first_cell; cell < end_cell; ++cell)
    __builtin_prefetch(&slots_[home(tag_of(keys[static_cast<size_t>(cell * kExtentBlocks)]))]);
  for (int64_t cell = first_cell; cell < end_cell; ++cell) {
    const Slot& slot = slots_[home(tag_of(keys[static_cast<size_t>(cell * kExtentBlocks)]))];
    if (!slot.entry) continue;
    const char* const begin = reinterpret_cast<const char*>(&entry(slot.entry));
    __builtin_prefetch(begin);
    __builtin_prefetch(begin + 64);
    __builtin_prefetch(begin + sizeof(Entry) - 1);  // entries do not begin at lines
  }
}

// Asks for the prefix and returns the number of probes. A short chain is asked for whole before galloping, whose probes
// would each wait for memory; of a long one that would be many lines in vain.
int64_t ExtentIndex::fetch_cells(std::span<const BlockKey> keys) const {
  constexpr int64_t kCellsAhead = 32;
  const int64_t num_cells = ceil_div<int64_t>(static_cast<int64_t>(keys.size()), kExtentBlocks);
  const int64_t num_ahead = std::min(num_cells, kCellsAhead);
  prefetch_cells(keys, 0, num_ahead);
  int64_t num_probes = 0;
  const int64_t num_found = gallop(keys, num_probes);
  if (num_found > num_ahead) prefetch_cells(keys, num_ahead, num_found);
  return num_probes;
}

namespace {

// The last extent goes on, but its next block was computed behind a fast replay.
bool ends_before_fast_replay(const PrefixMatch& match, std::span<const BlockKey> keys) {
  if (match.extents.empty()) return false;
  const ExtentMatch& last = match.extents.back();
  const auto next = static_cast<size_t>(last.num_blocks);
  return last.num_blocks < last.record.num_blocks && (last.record.fast_replay_mask >> next & 1) != 0 &&
         last.record.fingerprints[next] == fingerprint_of(keys[static_cast<size_t>(match.num_blocks)]);
}

}  // namespace

PrefixMatch ExtentIndex::longest_prefix(std::span<const BlockKey> keys, bool exact_only) const {
  PrefixMatch match;
  const int64_t num_keys = static_cast<int64_t>(keys.size());
  match.num_probes = fetch_cells(keys);
  while (match.num_blocks < num_keys) {
    ++match.num_probes;
    int64_t n = 0;
    const uint32_t number = best_variant(keys, match.num_blocks, exact_only, n);
    if (n == 0) {
      const bool is_fast = number || ends_before_fast_replay(match, keys);
      match.reason = is_fast ? StoreMiss::kReplay : why_absent(keys[static_cast<size_t>(match.num_blocks)]);
      break;
    }
    match.extents.push_back({record_at(number), match.num_blocks, n});
    match.num_blocks += n;
  }
  return match;
}

int64_t ExtentIndex::prefix_blocks(std::span<const BlockKey> keys, bool exact_only) const {
  int64_t num_blocks = 0;
  fetch_cells(keys);
  while (num_blocks < static_cast<int64_t>(keys.size())) {
    int64_t n = 0;
    best_variant(keys, num_blocks, exact_only, n);
    if (n == 0) break;
    num_blocks += n;
  }
  return num_blocks;
}

std::optional<ExtentRecord> ExtentIndex::find(RecordKind kind, const BlockKey& key) const {
  const BlockKey stored = record_key(kind, key);
  const uint32_t tag = tag_of(stored);
  for (size_t at = home(tag); slots_[at].entry; at = next(at)) {
    if (slots_[at].tag != tag) continue;
    const Entry& e = entry(slots_[at].entry);
    if (e.key == stored && e.kind == kind) return record_at(slots_[at].entry);
  }
  return std::nullopt;
}

bool ExtentIndex::remove(const ExtentRecord& record, StoreMiss why) {
  const uint32_t tag = tag_of(record.key);
  for (size_t at = home(tag); slots_[at].entry; at = next(at)) {
    if (slots_[at].tag != tag || record_at(slots_[at].entry) != record) continue;
    const uint32_t number = slots_[at].entry;
    erase_slot_of(number);
    unlink(number);
    remember_absent(record.key, why);
    return true;
  }
  return false;
}

int64_t ExtentIndex::drop_segment(SegmentId segment, StoreMiss why) {
  const auto at = segment_numbers_.find(static_cast<uint64_t>(segment));
  if (at == segment_numbers_.end()) return 0;
  const uint32_t number = at->second;
  int64_t num_removed = 0;
  while (const uint32_t first = segments_[number].first_entry) {
    remember_absent(entry(first).key, why);
    erase_slot_of(first);
    unlink(first);
    ++num_removed;
  }
  segment_numbers_.erase(at);
  free_segments_.push_back(number);
  return num_removed;
}

std::vector<ExtentRecord> ExtentIndex::records_of(SegmentId segment) const {
  std::vector<ExtentRecord> records;
  const auto at = segment_numbers_.find(static_cast<uint64_t>(segment));
  if (at == segment_numbers_.end()) return records;
  for (uint32_t e = segments_[at->second].first_entry; e; e = entry(e).next) records.push_back(record_at(e));
  std::reverse(records.begin(), records.end());  // in the order they were published
  return records;
}

StoreMiss ExtentIndex::why_absent(const BlockKey& key) const {
  if (absences_.empty()) return StoreMiss::kNeverStored;
  const uint64_t absence = absences_[absence_slot(key)];
  if ((absence & ~uint64_t{0xff}) != absence_of(key) || absence == 0) return StoreMiss::kNeverStored;
  return static_cast<StoreMiss>(absence & 0xff);
}

void ExtentIndex::remember_absent(const BlockKey& key, StoreMiss why) {
  if (absences_.empty()) absences_.resize(kAbsences);
  absences_[absence_slot(key)] = absence_of(key) | static_cast<uint64_t>(why);
}

void ExtentIndex::check_invariants() const {
  int64_t num_slots = 0, num_linked = 0, num_blocks = 0;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (!slots_[i].entry) continue;
    ++num_slots;
    CHECK(slots_[i].tag == tag_of(entry(slots_[i].entry).key));
    for (size_t at = home(slots_[i].tag); at != i; at = next(at)) CHECK(slots_[at].entry);  // reachable from its home
  }
  for (const auto& [id, number] : segment_numbers_) {
    int64_t n = 0;
    uint32_t previous = 0;
    for (uint32_t e = segments_[number].first_entry; e; previous = e, e = entry(e).next, ++n) {
      CHECK(entry(e).previous == previous && entry(e).segment == number);
      CHECK(contains(entry(e).key));
      num_blocks += entry(e).num_blocks;
    }
    CHECK(n == segments_[number].num_entries);
    num_linked += n;
  }
  CHECK(num_slots == num_extents_ && num_linked == num_extents_ && num_blocks == num_blocks_);
}

}  // namespace deepinfer
