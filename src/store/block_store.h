// SPDX-License-Identifier: MIT
// The store: keeps blocks of global KV and records of sequences for days, by key, and finds the longest prefix that is
// there. It survives restarts, crashes and lost disks, says why whatever is missing is missing, and delivers right
// bytes or none. Writing never makes a caller wait: put() hands over, a queue with a bound drops its oldest when it is
// full (this is a cache), and an extent can be found once enough shards have it. Thread: any; get() blocks its caller
// for the disks.
#pragma once

#include <array>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>

#include "store/cipher.h"
#include "store/extent_io.h"
#include "store/segment_table.h"

namespace deepinfer {

struct StoreOptions {
  int num_data_shards = 1, num_parity_shards = 0;  // 1 + 0 plain, 10 + 2 coded
  int64_t num_groups = 4096;                       // where there are more devices than shards
  std::vector<StoreNode> nodes;                    // names and failure domains; empty = the devices' own names
  TtlPolicy ttl;
  int64_t capacity_bytes = 0;  // on all devices together; 0 = as much as the disks hold
  int64_t segment_bytes_max = kSegmentBytesMax;
  int64_t write_queue_bytes_max = int64_t{256} << 20;
  int writes_together = 8;  // extents
  int min_acks = 0;         // shards that must have an extent; 0 = all but one where there is parity, else all
  int64_t read_timeout_ns = 2'000'000'000, write_timeout_ns = 10'000'000'000;
  int extents_in_flight_max = 16;
  HedgeOptions hedge;
  std::optional<CipherKey> master_key;  // encrypt blocks at rest
  int64_t checkpoint_every_ns = 600 * kSecondNs;
  bool background = true;  // threads of its own; without, flush() and maintain() do the work in their caller
  uint64_t writer = 0;     // 0 = from the operating system's entropy
};

inline constexpr size_t kPinsMax = size_t{1} << 20;  // blocks: 134 million tokens

// Who asks and what the bytes mean; made by BlockStore::scope().
struct StoreScope {
  ScopeTags tags;
  CipherKey cipher_key{};
  bool was_deleted = false;  // the tenant's earlier data was deleted: misses say so
};

struct StorePut {
  StoreScope scope;
  TtlClass ttl_class = TtlClass::kChat;
  std::vector<BlockKey> keys;  // of the whole chain from block 0 on
  int64_t first_block = 0;     // bytes are given of [first_block, keys.size())
  int64_t block_bytes = 0;
  std::vector<uint8_t> bytes;
  std::vector<uint8_t> fast_replay;       // one a block given, 0 or 1; empty = none was computed behind a fast replay
  std::vector<TokenId> tokens;            // of the blocks given, 128 each; may be empty
  RecordKind kind = RecordKind::kBlocks;  // others: one block, by put_record()
  bool merge = false;                     // set by the store itself: writes a cell again as one extent
};

struct StoreLookup {
  int64_t num_blocks = 0;
  StoreMiss reason = StoreMiss::kNone;
};

struct StoreRequest {
  StoreScope scope;
  std::span<const BlockKey> keys;  // the chain from block 0 on
  Range blocks;                    // wanted; end <= keys.size()
  int64_t block_bytes = 0;
  bool exact_only = false;
  std::span<const TokenId>
      tokens;  // of the whole chain, 128 a block; compared with the stored ones where both are known
};

struct StoreGet {
  int64_t num_blocks = 0;               // delivered, from the range's begin
  StoreMiss reason = StoreMiss::kNone;  // why fewer than asked
  std::vector<uint8_t> fast_replay;     // one a block delivered
};

struct StoreStats {
  int64_t num_extents = 0, num_blocks = 0, num_segments = 0, num_bytes = 0, capacity_bytes = 0, index_bytes = 0;
  int64_t num_lookups = 0, num_blocks_asked = 0, num_blocks_hit = 0;
  std::array<int64_t, kNumStoreMisses> misses{};  // of lookups and reads, by reason
  int64_t num_blocks_read = 0, bytes_read = 0, num_blocks_put = 0, bytes_written = 0;
  int64_t num_puts_dropped = 0;   // the queue was full
  int64_t num_writes_failed = 0;  // extents that too few shards took
  int64_t num_writes_full = 0;    // of those, for want of room
  int64_t num_blocks_known = 0;   // put although they were there already: not written again
  int64_t queue_bytes = 0;
  int64_t num_shard_reads = 0, num_late_hedges = 0, num_degraded_reads = 0, num_damaged_shards = 0;
  int64_t num_copied_forward = 0, num_repaired = 0, num_merged = 0;
  int64_t num_segments_expired = 0, num_segments_dropped_early = 0, num_pins = 0;
  std::array<double, kNumTtlClasses> effective_ttl_s{};
  int64_t read_p50_ns = 0, read_p99_ns = 0;
};

struct StoreDeviceReport {
  std::string name;
  DeviceHealth health;
  DeviceSpace space;
};

// What opening found.
struct StoreRecovery {
  int64_t num_extents = 0, num_segments = 0;
  int64_t num_from_checkpoint = 0, num_from_footers = 0, num_walked = 0;  // segments
  int64_t num_unreadable = 0;                                             // segments that no shard explains
  int64_t num_devices_silent = 0;
};

struct ScrubReport {
  int64_t num_extents = 0, num_blocks = 0, num_damaged_shards = 0, num_missing_shards = 0, num_lost_extents = 0;
};

class BlockStore {
 public:
  // Reads what the devices hold. Errors: invalid_argument (too few devices for the code), unavailable (too few answer).
  static Result<std::unique_ptr<BlockStore>> open(const StoreOptions& options,
                                                  std::vector<std::unique_ptr<ShardDevice>> devices,
                                                  const Clock& clock);
  ~BlockStore();  // writes what is queued, seals, checkpoints

  StoreScope scope(const KeyScope& scope) const;

  // Longest prefix of the chain that is stored. Cheap: memory only.
  StoreLookup lookup(const StoreScope& scope, std::span<const BlockKey> keys, bool exact_only);
  // Whether the whole chain is there; counts as no lookup and renews nothing.
  bool holds(const StoreScope& scope, std::span<const BlockKey> keys, bool exact_only) const;
  // The wanted blocks into `out`, one behind the other. Blocks for the disks.
  StoreGet get(const StoreRequest& request, std::span<uint8_t> out);
  void put(StorePut put);

  // Tail and full records: one blob under the key of the block at whose end it stands.
  void put_record(const StoreScope& scope, RecordKind kind, TtlClass ttl_class, const BlockKey& key,
                  std::vector<uint8_t> bytes);
  struct Record {
    std::vector<uint8_t> bytes;  // empty when there is a reason
    StoreMiss reason = StoreMiss::kNone;
  };
  Record get_record(const StoreScope& scope, RecordKind kind, const BlockKey& key);
  bool holds_record(const StoreScope& scope, RecordKind kind, const BlockKey& key) const;  // memory only

  // Keeps what is and will be stored of these blocks beyond its time, until unpinned or its tenant is forgotten. False,
  // and nothing is pinned, when that would be more than kPinsMax blocks in all.
  bool pin(std::span<const BlockKey> keys);
  void unpin(std::span<const BlockKey> keys);
  // From now on lookups of this tenant miss with reason `tenant`.
  void forget_tenant(const ScopeTags& tags);

  void flush();     // returns when everything put before is written or given up
  void maintain();  // expire, renew, repair, seal, make room, checkpoint; the background does it every second
  // Reads every extent in full and mends what can be mended. `go_on` is asked between extents.
  ScrubReport scrub(const std::function<bool(int64_t done, int64_t all)>& go_on);

  StoreStats stats() const;
  std::vector<StoreDeviceReport> devices() const;
  const StoreRecovery& recovery() const { return recovery_; }
  const StoreOptions& options() const { return options_; }

 private:
  BlockStore(const StoreOptions& options, std::vector<std::unique_ptr<ShardDevice>> devices, const Clock& clock);
  struct PendingWrite;
  struct Renewal {
    ExtentRecord record;
    TtlClass ttl_class{};
    enum class Why { kHit, kPin, kDegraded } why = Why::kHit;
  };
  struct Repair {
    ExtentRecord record;
    uint32_t shards = 0;
  };
  ExtentDevices io() const;
  const PlacementGroup& group(uint32_t number) const;
  bool group_is_whole(int64_t number) const;

  // block_store.cc
  StoreMiss tenant_miss(const StoreScope& scope, StoreMiss reason) const;
  struct Gathered;
  Gathered gather(const StoreRequest& request);
  void count_lookup(const StoreLookup& found, int64_t num_asked);
  void note_read(const ExtentRead& read, const ExtentReadResult& result);
  StoreMiss judge_read(const ExtentRecord& record, const ExtentReadResult& result);
  void note_hit(const ExtentRecord& record);
  bool decrypt(const StoreScope& scope, const ExtentReadResult& result, std::span<uint8_t> bytes) const;
  bool tokens_agree(const StoreRequest& request, const RowHeader& header, int64_t first_block, int64_t n) const;
  void verify(const StoreRequest& request, const ExtentMatch& extent, std::span<uint8_t> bytes,
              ExtentReadResult& result) const;
  void merge_cells(const StoreRequest& request, std::span<const uint8_t> bytes, std::span<const ExtentMatch> extents,
                   const StoreGet& got);

  // block_store_write.cc
  void run_writer();
  bool write_some();  // false: nothing was queued
  std::vector<PendingWrite> cut(StorePut put);
  int write_batch(std::vector<PendingWrite> batch);  // number of extents published
  bool place(PendingWrite& write);

  // block_store_maintain.cc
  void run_maintainer();
  void expire();
  void make_room();
  void drop_segment(SegmentId id, StoreMiss why);
  void renew_some();
  void repair_some();
  bool rewrite(const ExtentRecord& record);
  bool append_again(RowHeader header, std::vector<uint8_t> bytes);
  void scrub_extent(const ExtentRecord& record, ScrubReport& report);
  bool mend(const ExtentRecord& record, uint32_t shards);
  void seal_ready();
  void checkpoint_if_due(bool now);
  ExtentReadResult read_whole(const ExtentRecord& record, std::vector<uint8_t>& bytes) const;

  StoreOptions options_;
  const Clock& clock_;
  std::vector<std::unique_ptr<ShardDevice>> devices_;
  ErasureCode code_;
  std::unique_ptr<HedgePolicy> hedge_;
  std::vector<PlacementGroup> groups_;
  StoreRecovery recovery_;
  uint64_t nonce_seed_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable work_, idle_;
  ExtentIndex index_;
  SegmentTable segments_;
  StoreStats stats_;
  EffectiveTtl effective_;
  std::deque<StorePut> queue_;
  int64_t queue_bytes_ = 0;
  bool writing_ = false, stopping_ = false, disk_full_ = false;
  std::vector<Renewal> renewals_;
  std::vector<Repair> repairs_;
  std::unordered_set<uint64_t> scheduled_;  // places of renewals and repairs that are queued
  std::unordered_set<BlockKey, BlockKeyHash> pins_;
  std::unordered_set<uint64_t> deleted_tenants_;
  int64_t last_checkpoint_ns_ = 0;
  uint64_t checkpoint_number_ = 0;
  uint64_t num_nonces_ = 0;
  std::mutex maintaining_;  // one maintenance at a time
  std::thread writer_, maintainer_;
};

}  // namespace deepinfer
