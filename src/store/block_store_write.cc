// SPDX-License-Identifier: MIT
// The write path: a bounded queue, cut into extents that are not there yet, encoded, written, published once enough
// shards have them.
#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/entropy.h"
#include "store/block_store.h"

namespace deepinfer {

struct BlockStore::PendingWrite {
  RowHeader header;
  ExtentRecord record;
  std::vector<uint8_t> bytes;
  CipherKey cipher_key{};
  uint32_t group = 0;
  bool merge = false;
  bool again = false;  // bytes as they were stored before
};

void BlockStore::put(StorePut put) {
  const auto size = static_cast<int64_t>(put.bytes.size());
  CHECK(put.block_bytes >= 1 && put.block_bytes <= kBlockBytesMax && put.first_block >= 0);
  CHECK(size == (static_cast<int64_t>(put.keys.size()) - put.first_block) * put.block_bytes);
  if (size == 0) return;
  {
    const std::lock_guard lock(mutex_);
    if (size > options_.write_queue_bytes_max) {
      ++stats_.num_puts_dropped;
      return;
    }
    while (queue_bytes_ + size > options_.write_queue_bytes_max && !queue_.empty()) {
      queue_bytes_ -= static_cast<int64_t>(queue_.front().bytes.size());
      queue_.pop_front();
      ++stats_.num_puts_dropped;
    }
    queue_bytes_ += size;
    queue_.push_back(std::move(put));
  }
  work_.notify_one();
}

void BlockStore::put_record(const StoreScope& scope, RecordKind kind, TtlClass ttl_class, const BlockKey& key,
                            std::vector<uint8_t> bytes) {
  CHECK(kind != RecordKind::kBlocks);
  const auto size = static_cast<int64_t>(bytes.size());
  put({.scope = scope,
       .ttl_class = ttl_class,
       .keys = {key},
       .block_bytes = size,
       .bytes = std::move(bytes),
       .kind = kind});
}

BlockStore::Record BlockStore::get_record(const StoreScope& scope, RecordKind kind, const BlockKey& key) {
  Record out;
  std::optional<ExtentRecord> record;
  ExtentRead read{.keys = {&key, 1}, .scope = scope.tags};
  {
    const std::lock_guard lock(mutex_);
    if (deleted_tenants_.contains(scope.tags.tenant)) return {{}, StoreMiss::kTenant};
    record = index_.find(kind, key);
    const SegmentState* const segment = record ? segments_.find(record->segment) : nullptr;
    if (!segment) {
      out.reason = tenant_miss(scope, index_.why_absent(record_key(kind, key)));
      ++stats_.misses[static_cast<size_t>(out.reason)];
      return out;
    }
    read.record = *record;
    read.group = group(segment->head.group);
  }
  out.bytes.resize(record->block_bytes);
  read.out = out.bytes;
  ExtentReadResult result = std::move(read_extents(io(), {&read, 1}).front());
  if (result.num_blocks > 0 && !decrypt(scope, result, out.bytes)) result.reason = StoreMiss::kTenant;
  const std::lock_guard lock(mutex_);
  note_read(read, result);
  out.reason = judge_read(*record, result);
  ++stats_.misses[static_cast<size_t>(out.reason)];
  if (out.reason != StoreMiss::kNone) out.bytes.clear();
  return out;
}

bool BlockStore::holds_record(const StoreScope& scope, RecordKind kind, const BlockKey& key) const {
  const std::lock_guard lock(mutex_);
  return !deleted_tenants_.contains(scope.tags.tenant) && index_.find(kind, key).has_value();
}

void BlockStore::flush() {
  if (!options_.background) {
    while (write_some()) {}
    return;
  }
  std::unique_lock lock(mutex_);
  idle_.wait(lock, [this] { return (queue_.empty() && !writing_) || stopping_; });
}

void BlockStore::run_writer() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      work_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
    }
    while (write_some()) {}
  }
}

bool BlockStore::write_some() {
  std::vector<PendingWrite> batch;
  std::vector<BlockKey> roots;  // of the puts taken: what two share is cut against what is published, so not together
  {
    const std::lock_guard lock(mutex_);
    if (queue_.empty()) return false;
    writing_ = true;
  }
  while (static_cast<int>(batch.size()) < options_.writes_together) {
    StorePut next;
    {
      const std::lock_guard lock(mutex_);
      if (queue_.empty()) break;
      if (std::find(roots.begin(), roots.end(), queue_.front().keys.front()) != roots.end()) break;
      roots.push_back(queue_.front().keys.front());
      next = std::move(queue_.front());
      queue_.pop_front();
      queue_bytes_ -= static_cast<int64_t>(next.bytes.size());
    }
    for (PendingWrite& write : cut(std::move(next))) batch.push_back(std::move(write));
  }
  for (size_t begin = 0; begin < batch.size(); begin += static_cast<size_t>(options_.writes_together)) {
    const size_t end = std::min(batch.size(), begin + static_cast<size_t>(options_.writes_together));
    write_batch({std::make_move_iterator(batch.begin() + static_cast<int64_t>(begin)),
                 std::make_move_iterator(batch.begin() + static_cast<int64_t>(end))});
  }
  const std::lock_guard lock(mutex_);
  writing_ = false;
  if (queue_.empty()) idle_.notify_all();
  return true;
}

// Extents for those blocks of the put that the index does not have, each within one cell.
std::vector<BlockStore::PendingWrite> BlockStore::cut(StorePut put) {
  std::vector<PendingWrite> writes;
  const auto end = static_cast<int64_t>(put.keys.size());
  for (int64_t cell = put.first_block / kExtentBlocks; cell * kExtentBlocks < end; ++cell) {
    const int64_t cell_end = std::min(end, (cell + 1) * kExtentBlocks);
    const int64_t given = std::max(put.first_block, cell * kExtentBlocks);
    const auto is_fast = [&](int64_t b) {
      return !put.fast_replay.empty() && put.fast_replay[static_cast<size_t>(b - put.first_block)] != 0;
    };
    int64_t begin = put.merge || put.kind != RecordKind::kBlocks ? given : cell * kExtentBlocks;
    if (!put.merge && put.kind == RecordKind::kBlocks) {
      bool any_fast = false;
      for (int64_t b = given; b < cell_end; ++b) any_fast |= is_fast(b);
      const std::lock_guard lock(mutex_);
      const std::span<const BlockKey> keys(put.keys.data(), static_cast<size_t>(cell_end));
      while (begin < cell_end) {
        const auto match = index_.match_at(keys, begin, !any_fast);
        if (!match) break;
        begin += match->num_blocks;
      }
      begin = std::max(begin, given);
      stats_.num_blocks_known += begin - given;
    }
    if (begin >= cell_end) continue;
    PendingWrite write{.cipher_key = put.scope.cipher_key, .merge = put.merge};
    write.header = {.num_data_shards = static_cast<uint8_t>(code_.num_data_shards()),
                    .num_parity_shards = static_cast<uint8_t>(code_.num_parity_shards()),
                    .kind = put.kind,
                    .ttl_class = put.ttl_class,
                    .block_bytes = static_cast<uint32_t>(put.block_bytes),
                    .first_block = static_cast<uint32_t>(begin),
                    .scope = put.scope.tags};
    for (int64_t b = begin; b < cell_end; ++b) {
      BlockStamp stamp{.key = put.keys[static_cast<size_t>(b)]};
      const auto token = static_cast<size_t>((b - put.first_block) * kBlockKeyTokens);
      if (token + static_cast<size_t>(kBlockKeyTokens) <= put.tokens.size()) {
        stamp.first_token = put.tokens[token];
        stamp.last_token = put.tokens[token + static_cast<size_t>(kBlockKeyTokens) - 1];
      }
      if (is_fast(b)) write.header.fast_replay_mask |= 1u << (b - begin);
      write.header.blocks.push_back(stamp);
    }
    const uint8_t* const bytes = put.bytes.data() + (begin - put.first_block) * put.block_bytes;
    write.bytes.assign(bytes, bytes + (cell_end - begin) * put.block_bytes);
    write.record = record_of(write.header);
    writes.push_back(std::move(write));
  }
  return writes;
}

// Encrypts, finds room, and writes the heads of a segment that is opened for it. False: there is no room.
bool BlockStore::place(PendingWrite& write) {
  RowHeader& header = write.header;
  if (options_.master_key && header.cipher == 0 && !write.again) {
    header.cipher = 1;
    const std::array<uint64_t, 2> unique = {nonce_seed_ + (num_nonces_++ << 8), entropy_u64()};
    std::memcpy(header.nonce.data(), unique.data(), header.nonce.size());
    for (int64_t b = 0; b < header.num_blocks(); ++b) {
      BlockStamp& block = header.blocks[static_cast<size_t>(b)];
      const std::span<uint8_t> bytes(write.bytes.data() + b * header.block_bytes, header.block_bytes);
      encrypt_block(write.cipher_key, block_nonce(header.nonce, b), block.key, bytes, block.cipher_tag);
    }
  }
  write.group = static_cast<uint32_t>(group_of(write.record.key, static_cast<int64_t>(groups_.size()),
                                               [this](int64_t g) { return group_is_whole(g); }));
  const int64_t row = row_bytes_of(header.num_blocks(), part_bytes_of(header.block_bytes, code_.num_data_shards()));
  RowPlace place;
  SegmentHead head;
  {
    const std::lock_guard lock(mutex_);
    place = segments_.reserve(write.group, header.ttl_class, options_.ttl.bucket_of(clock_.unix_ns()), row);
    head = segments_.find(place.segment)->head;
  }
  header.segment = place.segment;
  header.offset = static_cast<uint64_t>(place.offset);
  write.record = record_of(header);
  if (!place.is_new) return true;
  const int num_acks = write_to_group(io(), group(write.group), place.segment, 0, [&](int shard) {
    std::vector<uint8_t> page(static_cast<size_t>(kPageBytes));
    SegmentHead own = head;
    own.shard = static_cast<uint8_t>(shard);
    encode_segment_head(own, page);
    return page;
  });
  const std::lock_guard lock(mutex_);
  if (num_acks >= options_.min_acks) segments_.head_written(place.segment);
  return num_acks >= options_.min_acks;
}

// What was read from one segment into the current one of its class: ciphertext, nonce and stamps stay as they are.
bool BlockStore::append_again(RowHeader header, std::vector<uint8_t> bytes) {
  std::vector<PendingWrite> batch(1);
  batch[0].again = true;
  batch[0].header = std::move(header);
  batch[0].bytes = std::move(bytes);
  batch[0].record = record_of(batch[0].header);
  return write_batch(std::move(batch)) == 1;
}

int BlockStore::write_batch(std::vector<PendingWrite> batch) {
  std::vector<ExtentWrite> writes;
  std::vector<PendingWrite*> placed;
  for (PendingWrite& write : batch) {
    if (place(write)) {
      placed.push_back(&write);
      writes.push_back(
          {.header = write.header, .group = group(write.group), .blocks = write.bytes, .min_acks = options_.min_acks});
      continue;
    }
    const std::lock_guard lock(mutex_);
    segments_.finish_row(write.record.segment, std::nullopt, {});
    segments_.close(write.record.segment);  // its head is not safe: nothing more goes there
    ++stats_.num_writes_failed;
  }
  if (writes.empty()) return 0;
  const std::vector<ExtentWriteResult> results = write_extents(io(), writes);
  int num_written = 0;
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < placed.size(); ++i) {
    const PendingWrite& write = *placed[i];
    if (!results[i].status.ok()) {
      ++stats_.num_writes_failed;
      if (results[i].status.code() == StatusCode::kResourceExhausted) {
        ++stats_.num_writes_full;
        disk_full_ = true;
      }
      segments_.finish_row(write.record.segment, std::nullopt, {});
      continue;
    }
    // Published only now, behind the data: an index entry without its bytes would promise what is not there.
    segments_.finish_row(write.record.segment, write.record, results[i].part_crcs);
    if (segments_.find(write.record.segment)) index_.insert(write.record);
    if (!write.again) stats_.num_blocks_put += write.record.num_blocks;
    stats_.bytes_written += static_cast<int64_t>(write.bytes.size());
    stats_.num_merged += write.merge;
    ++num_written;
  }
  return num_written;
}

}  // namespace deepinfer
