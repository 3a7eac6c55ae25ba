// SPDX-License-Identifier: MIT
// Opening, lookups and reads. Writing is block_store_write.cc, upkeep block_store_maintain.cc.
#include "store/block_store.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"
#include "base/entropy.h"
#include "store/store_recovery.h"

namespace deepinfer {
BlockStore::BlockStore(const StoreOptions& options, std::vector<std::unique_ptr<ShardDevice>> devices,
                       const Clock& clock)
    : options_(options),
      clock_(clock),
      devices_(std::move(devices)),
      code_(options.num_data_shards, options.num_parity_shards),
      hedge_(std::make_unique<HedgePolicy>(static_cast<int>(devices_.size()), options.num_data_shards, options.hedge,
                                           clock)),
      nonce_seed_(entropy_u64()),
      segments_(options.writer ? options.writer : entropy_u64() | (uint64_t{1} << 63), options.num_data_shards,
                options.num_parity_shards, options.segment_bytes_max) {
  if (options_.min_acks == 0) options_.min_acks = code_.num_shards() - (options.num_parity_shards > 0 ? 1 : 0);
}

Result<std::unique_ptr<BlockStore>> BlockStore::open(const StoreOptions& options,
                                                     std::vector<std::unique_ptr<ShardDevice>> devices,
                                                     const Clock& clock) {
  std::vector<StoreNode> nodes = options.nodes;
  if (nodes.empty())
    for (const auto& device : devices) nodes.push_back({device->name(), ""});
  ASSIGN_OR_RETURN(std::vector<PlacementGroup> groups,
                   balanced_groups(nodes, options.num_groups, options.num_data_shards + options.num_parity_shards));
  std::unique_ptr<BlockStore> store(new BlockStore(options, std::move(devices), clock));
  ASSIGN_OR_RETURN(Recovered recovered, recover_store(store->io(), groups, store->index_));
  store->groups_ = std::move(groups);  // from here on it is open, and writes when it goes
  for (SegmentState& segment : recovered.segments) store->segments_.add(std::move(segment));
  store->pins_.insert(recovered.pins.begin(), recovered.pins.end());
  store->deleted_tenants_.insert(recovered.deleted_tenants.begin(), recovered.deleted_tenants.end());
  store->checkpoint_number_ = recovered.checkpoint_number;
  store->recovery_ = recovered.report;
  store->last_checkpoint_ns_ = clock.monotonic_ns();
  if (options.background) {
    store->writer_ = std::thread([s = store.get()] { s->run_writer(); });
    store->maintainer_ = std::thread([s = store.get()] { s->run_maintainer(); });
  }
  return store;
}

BlockStore::~BlockStore() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  work_.notify_all();
  idle_.notify_all();
  if (writer_.joinable()) writer_.join();
  if (maintainer_.joinable()) maintainer_.join();
  while (write_some()) {}
  if (!groups_.empty()) {  // it was opened
    {
      const std::lock_guard lock(mutex_);
      segments_.close_all();
    }
    seal_ready();
    checkpoint_if_due(true);
  }
  devices_.clear();  // operations under way end here, while what their callbacks use still stands
}

ExtentDevices BlockStore::io() const {
  return {.devices = devices_,
          .code = code_,
          .hedge = *hedge_,
          .clock = clock_,
          .read_timeout_ns = options_.read_timeout_ns,
          .write_timeout_ns = options_.write_timeout_ns,
          .extents_in_flight_max = options_.extents_in_flight_max};
}

const PlacementGroup& BlockStore::group(uint32_t number) const { return groups_[number]; }

bool BlockStore::group_is_whole(int64_t number) const {
  const PlacementGroup& devices = groups_[static_cast<size_t>(number)];
  return std::none_of(devices.begin(), devices.end(), [this](int device) { return hedge_->is_down(device); });
}

StoreScope BlockStore::scope(const KeyScope& scope) const {
  StoreScope made{.tags = scope_tags(scope)};
  if (options_.master_key) made.cipher_key = derive_key(*options_.master_key, scope.tenant_salt);
  return made;
}

void BlockStore::forget_tenant(const ScopeTags& tags) {
  const std::lock_guard lock(mutex_);
  deleted_tenants_.insert(tags.tenant);
  last_checkpoint_ns_ = 0;  // remember it soon
}

// What was never stored under a tenant's new salt may well have been stored under the one that was deleted.
StoreMiss BlockStore::tenant_miss(const StoreScope& scope, StoreMiss reason) const {
  return reason == StoreMiss::kNeverStored && scope.was_deleted ? StoreMiss::kTenant : reason;
}

StoreLookup BlockStore::lookup(const StoreScope& scope, std::span<const BlockKey> keys, bool exact_only) {
  const std::lock_guard lock(mutex_);
  StoreLookup found;
  if (deleted_tenants_.contains(scope.tags.tenant)) {
    if (!keys.empty()) found.reason = StoreMiss::kTenant;
  } else {
    const PrefixMatch match = index_.longest_prefix(keys, exact_only);
    found = {match.num_blocks, tenant_miss(scope, match.reason)};
    for (const ExtentMatch& extent : match.extents) note_hit(extent.record);
  }
  count_lookup(found, static_cast<int64_t>(keys.size()));
  return found;
}

bool BlockStore::holds(const StoreScope& scope, std::span<const BlockKey> keys, bool exact_only) const {
  const std::lock_guard lock(mutex_);
  return !deleted_tenants_.contains(scope.tags.tenant) &&
         index_.prefix_blocks(keys, exact_only) == static_cast<int64_t>(keys.size());
}

void BlockStore::count_lookup(const StoreLookup& found, int64_t num_asked) {
  ++stats_.num_lookups;
  stats_.num_blocks_asked += num_asked;
  stats_.num_blocks_hit += found.num_blocks;
  ++stats_.misses[static_cast<size_t>(found.reason)];
}

// An extent that is wanted in the last quarter of its time is copied into a young segment.
void BlockStore::note_hit(const ExtentRecord& record) {
  const SegmentState* const segment = segments_.find(record.segment);
  if (!segment || !options_.ttl.wants_renewal(segment->head.ttl_class, segment->head.bucket, clock_.unix_ns())) return;
  if (!scheduled_.insert(place_of(record)).second) return;
  renewals_.push_back({record, segment->head.ttl_class, Renewal::Why::kHit});
}

// What a read says about the extent itself: what cannot be read any more leaves the index, so that it can be stored
// again.
StoreMiss BlockStore::judge_read(const ExtentRecord& record, const ExtentReadResult& result) {
  StoreMiss reason = result.reason;
  if (reason == StoreMiss::kNone) return reason;
  if (!segments_.find(record.segment)) return StoreMiss::kExpired;  // dropped while it was read
  const int num_gone = std::popcount(result.damaged_shards | result.missing_shards);
  const bool is_gone = num_gone > code_.num_parity_shards();
  if (is_gone || reason == StoreMiss::kLayout || (reason == StoreMiss::kChecksum && num_gone == 0))
    index_.remove(record, reason);
  return reason;
}

void BlockStore::note_read(const ExtentRead& read, const ExtentReadResult& result) {
  stats_.num_shard_reads += result.num_requests;
  stats_.num_late_hedges += result.hedged_late;
  stats_.num_damaged_shards += std::popcount(result.damaged_shards);
  const uint32_t gone = result.damaged_shards | result.missing_shards;
  stats_.num_degraded_reads += gone || result.silent_shards;
  if (result.reason != StoreMiss::kNone) return;
  stats_.num_blocks_read += result.num_blocks;
  stats_.bytes_read += result.num_blocks * read.record.block_bytes;
  int num_bad = std::popcount(gone);
  for (size_t shard = 0; shard < read.group.size(); ++shard)
    num_bad += !(gone >> shard & 1) && hedge_->is_down(read.group[shard]);
  if (gone == 0 && num_bad < 2) return;
  if (!scheduled_.insert(place_of(read.record)).second) return;
  // One dead device is left alone (data turns over in days); with a second one gone what is read is saved elsewhere.
  const SegmentState* const segment = segments_.find(read.record.segment);
  if (num_bad >= 2 && groups_.size() > 1 && segment)
    renewals_.push_back({read.record, segment->head.ttl_class, Renewal::Why::kDegraded});
  else if (gone) repairs_.push_back({read.record, gone});
}

bool BlockStore::decrypt(const StoreScope& scope, const ExtentReadResult& result, std::span<uint8_t> bytes) const {
  const RowHeader& header = *result.header;
  if (header.cipher == 0) return true;
  if (!options_.master_key) return false;
  for (int64_t b = 0; b < result.num_blocks; ++b) {
    const BlockStamp& block = header.blocks[static_cast<size_t>(b)];
    if (!decrypt_block(scope.cipher_key, block_nonce(header.nonce, b), block.key,
                       bytes.subspan(static_cast<size_t>(b) * header.block_bytes, header.block_bytes),
                       block.cipher_tag))
      return false;
  }
  return true;
}

bool BlockStore::tokens_agree(const StoreRequest& request, const RowHeader& header, int64_t first_block,
                              int64_t n) const {
  for (int64_t b = 0; b < n; ++b) {
    const auto first = static_cast<size_t>((first_block + b) * kBlockKeyTokens);
    const size_t last = first + static_cast<size_t>(kBlockKeyTokens) - 1;
    const BlockStamp& stamp = header.blocks[static_cast<size_t>(b)];
    const bool known = stamp.first_token != 0 || stamp.last_token != 0;
    if (last >= request.tokens.size() || !known) continue;
    if (request.tokens[first] != stamp.first_token || request.tokens[last] != stamp.last_token) return false;
  }
  return true;
}

// The extents that cover the wanted blocks, as far as the index knows them.
struct BlockStore::Gathered {
  std::vector<ExtentMatch> extents;
  std::vector<ExtentRead> reads;  // one each
  StoreMiss reason = StoreMiss::kNone;
};

BlockStore::Gathered BlockStore::gather(const StoreRequest& request) {
  Gathered out;
  const std::lock_guard lock(mutex_);
  if (deleted_tenants_.contains(request.scope.tags.tenant)) {
    out.reason = StoreMiss::kTenant;
    return out;
  }
  const auto chain = request.keys.first(static_cast<size_t>(request.blocks.end));
  const PrefixMatch match = index_.longest_prefix(chain, request.exact_only);
  out.reason = tenant_miss(request.scope, match.reason);
  for (const ExtentMatch& extent : match.extents) {
    const SegmentState* const segment = segments_.find(extent.record.segment);
    if (extent.first_block + extent.num_blocks <= request.blocks.begin || !segment) continue;
    if (extent.record.block_bytes != request.block_bytes) {
      out.reason = StoreMiss::kLayout;
      break;
    }
    note_hit(extent.record);
    out.extents.push_back(extent);
    out.reads.push_back(
        {.record = extent.record,
         .group = group(segment->head.group),
         .keys = request.keys.subspan(static_cast<size_t>(extent.first_block), static_cast<size_t>(extent.num_blocks)),
         .scope = request.scope.tags});
  }
  return out;
}

StoreGet BlockStore::get(const StoreRequest& request, std::span<uint8_t> out) {
  const Range wanted = request.blocks;
  const auto block_bytes = static_cast<size_t>(request.block_bytes);
  CHECK(wanted.begin >= 0 && wanted.end <= static_cast<int64_t>(request.keys.size()) &&
        out.size() == static_cast<size_t>(wanted.size()) * block_bytes);
  Gathered gathered = gather(request);
  std::vector<uint8_t> begun_before;  // the extent that begins before the range is read beside it
  for (size_t i = 0; i < gathered.reads.size(); ++i) {
    ExtentRead& read = gathered.reads[i];
    const int64_t skipped = wanted.begin - gathered.extents[i].first_block;
    if (skipped > 0) begun_before.resize(read.keys.size() * block_bytes);
    read.out = skipped > 0 ? std::span(begun_before)
                           : out.subspan(static_cast<size_t>(-skipped) * block_bytes, read.keys.size() * block_bytes);
  }
  std::vector<ExtentReadResult> results = read_extents(io(), gathered.reads);
  StoreGet got{.reason = gathered.reason};
  int64_t end = wanted.begin;
  for (size_t i = 0; i < results.size(); ++i) {
    const ExtentMatch& extent = gathered.extents[i];
    ExtentReadResult& result = results[i];
    verify(request, extent, gathered.reads[i].out, result);
    const int64_t have = extent.first_block + result.num_blocks;
    if (have > end && extent.first_block < wanted.begin)
      std::memcpy(out.data(),
                  begun_before.data() + static_cast<size_t>(wanted.begin - extent.first_block) * block_bytes,
                  static_cast<size_t>(have - wanted.begin) * block_bytes);
    for (; end < have; ++end)
      got.fast_replay.push_back(result.header->fast_replay_mask >> (end - extent.first_block) & 1);
    const std::lock_guard lock(mutex_);
    note_read(gathered.reads[i], result);
    if (result.reason == StoreMiss::kNone) continue;
    got.reason = judge_read(extent.record, result);
    ++stats_.misses[static_cast<size_t>(got.reason)];
    break;  // what was read behind it is of no use
  }
  got.num_blocks = end - wanted.begin;
  if (got.num_blocks == wanted.size()) got.reason = StoreMiss::kNone;
  merge_cells(request, out, gathered.extents, got);
  return got;
}

// Decrypts, and compares tokens: what fails is a miss.
void BlockStore::verify(const StoreRequest& request, const ExtentMatch& extent, std::span<uint8_t> bytes,
                        ExtentReadResult& result) const {
  if (result.num_blocks == 0) return;
  if (!decrypt(request.scope, result, bytes))
    result.reason = StoreMiss::kTenant;  // another key: the tenant's salt or the store's master key changed
  else if (!tokens_agree(request, *result.header, extent.first_block, result.num_blocks))
    result.reason = StoreMiss::kChecksum;
  else return;
  result.num_blocks = 0;
}

// A whole cell that came from several short extents is written again as one, while its bytes are at hand.
void BlockStore::merge_cells(const StoreRequest& request, std::span<const uint8_t> bytes,
                             std::span<const ExtentMatch> extents, const StoreGet& got) {
  const int64_t end = request.blocks.begin + got.num_blocks;
  for (int64_t cell = ceil_div(request.blocks.begin, kExtentBlocks); (cell + 1) * kExtentBlocks <= end; ++cell) {
    const int64_t begin = cell * kExtentBlocks;
    const auto num_parts = std::count_if(extents.begin(), extents.end(), [&](const ExtentMatch& extent) {
      return extent.first_block / kExtentBlocks == cell;
    });
    if (num_parts < 2) continue;
    const auto at = static_cast<size_t>(begin - request.blocks.begin);
    const auto block_bytes = static_cast<size_t>(request.block_bytes);
    const auto cell_bytes = bytes.subspan(at * block_bytes, static_cast<size_t>(kExtentBlocks) * block_bytes);
    StorePut put{.scope = request.scope,
                 .keys = {request.keys.begin(), request.keys.begin() + begin + kExtentBlocks},
                 .first_block = begin,
                 .block_bytes = request.block_bytes,
                 .bytes = {cell_bytes.begin(), cell_bytes.end()},
                 .fast_replay = {got.fast_replay.begin() + static_cast<int64_t>(at),
                                 got.fast_replay.begin() + static_cast<int64_t>(at) + kExtentBlocks},
                 .merge = true};
    const auto first_token = static_cast<size_t>(begin * kBlockKeyTokens);
    if (request.tokens.size() >= static_cast<size_t>((begin + kExtentBlocks) * kBlockKeyTokens))
      put.tokens.assign(request.tokens.begin() + static_cast<int64_t>(first_token),
                        request.tokens.begin() + (begin + kExtentBlocks) * kBlockKeyTokens);
    {
      const std::lock_guard lock(mutex_);
      const auto first =
          std::find_if(extents.begin(), extents.end(), [&](const ExtentMatch& e) { return e.first_block == begin; });
      const SegmentState* const segment = first == extents.end() ? nullptr : segments_.find(first->record.segment);
      if (!segment) continue;
      put.ttl_class = segment->head.ttl_class;
    }
    this->put(std::move(put));
  }
}

// An extent is known by its first block, and which one that is changes when extents are merged: so all blocks are
// noted.
bool BlockStore::pin(std::span<const BlockKey> keys) {
  const std::lock_guard lock(mutex_);
  if (pins_.size() + keys.size() > kPinsMax) return false;
  pins_.insert(keys.begin(), keys.end());
  last_checkpoint_ns_ = 0;  // remember it soon
  return true;
}

void BlockStore::unpin(std::span<const BlockKey> keys) {
  const std::lock_guard lock(mutex_);
  for (const BlockKey& key : keys) pins_.erase(key);
  last_checkpoint_ns_ = 0;
}

StoreStats BlockStore::stats() const {
  StoreStats stats;
  {
    const std::lock_guard lock(mutex_);
    stats = stats_;
    stats.num_extents = index_.num_extents();
    stats.num_blocks = index_.num_blocks();
    stats.index_bytes = index_.memory_bytes();
    stats.num_segments = static_cast<int64_t>(segments_.all().size());
    stats.num_bytes = segments_.num_bytes();
    stats.capacity_bytes = options_.capacity_bytes;
    stats.queue_bytes = queue_bytes_;
    stats.num_pins = static_cast<int64_t>(pins_.size());
    for (size_t c = 0; c < stats.effective_ttl_s.size(); ++c)
      stats.effective_ttl_s[c] = effective_.share() * static_cast<double>(options_.ttl.ttl_ns[c]) * 1e-9;
  }
  stats.read_p50_ns = hedge_->percentile_ns(0.5);
  stats.read_p99_ns = hedge_->percentile_ns(0.99);
  return stats;
}

std::vector<StoreDeviceReport> BlockStore::devices() const {
  std::vector<StoreDeviceReport> reports;
  for (size_t i = 0; i < devices_.size(); ++i) {
    const DeviceHealth health = hedge_->health(static_cast<int>(i));
    // Whoever does not answer reads cannot say how much room it has, and would keep the caller waiting.
    const DeviceSpace space = health.state == DeviceState::kGood ? devices_[i]->space() : DeviceSpace{};
    reports.push_back({devices_[i]->name(), health, space});
  }
  return reports;
}

}  // namespace deepinfer
