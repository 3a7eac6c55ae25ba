// SPDX-License-Identifier: MIT
#include "kv/store_tier.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace deepinfer {
namespace {
constexpr size_t kScopesMax = 4096;                     // digests kept at hand; made again when they are gone
constexpr int64_t kWaitingBytesMax = int64_t{4} << 30;  // of fetches not begun: a longer line is not worth waiting in
// Blocks before a hit's end at which a tail is looked for: from further back more is run again than replay costs.
constexpr int64_t kTailsLookedFor = 32;
}  // namespace

StoreTier::StoreTier(BlockStore& store, StoreTierOptions options)
    : store_(store), options_(std::move(options)), thread_([this] { run(); }) {}

StoreTier::~StoreTier() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

StoreScope& StoreTier::scope_of(const std::string& tenant_salt) {
  if (const auto at = scopes_.find(tenant_salt); at != scopes_.end()) return at->second;
  if (scopes_.size() >= kScopesMax) scopes_.clear();
  const StoreScope scope = store_.scope({tenant_salt, options_.model_revision, options_.cache_format});
  return scopes_.emplace(tenant_salt, scope).first->second;
}

bool StoreTier::start(uint64_t ticket, const StoreAsk& ask, StoreMiss& reason) {
  StoreScope& scope = scope_of(ask.tenant_salt);
  scope.was_deleted = ask.tenant_was_deleted;
  const auto usable =
      ask.keys.first(static_cast<size_t>(std::min<int64_t>(ask.num_usable, static_cast<int64_t>(ask.keys.size()))));
  const StoreLookup found = store_.lookup(scope, usable, ask.exact_only);
  reason = found.reason;
  const int64_t num_known = std::max(found.num_blocks, std::min(ask.num_present, ask.num_usable));
  const bool has_full = ask.exact_only && num_known > 0 &&
                        store_.holds_record(scope, RecordKind::kFull, usable[static_cast<size_t>(num_known - 1)]);
  const bool gains_blocks = found.num_blocks - ask.num_present >= options_.blocks_min;
  if (!gains_blocks && !has_full) return false;
  Order order{.scope = scope, .fetch = {}, .num_tail_max = ask.num_tail_max, .exact_only = ask.exact_only};
  order.fetch = {.ticket = ticket,
                 .keys = {usable.begin(), usable.begin() + num_known},
                 .blocks = {std::min(ask.num_present, num_known), num_known},
                 .reason = found.reason,
                 .num_full_blocks = has_full ? num_known : 0};
  {
    const std::lock_guard lock(mutex_);
    int64_t num_blocks = order.fetch.blocks.size();
    for (const Order& waiting : orders_) num_blocks += waiting.fetch.blocks.size();
    const bool too_long = !orders_.empty() && num_blocks * options_.block_bytes > kWaitingBytesMax;
    if (num_under_way_ >= options_.fetches_max || too_long) return false;
    ++num_under_way_;
    orders_.push_back(std::move(order));
  }
  wake_.notify_one();
  return true;
}

void StoreTier::run() {
  for (;;) {
    Order order;
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [this] { return stopping_ || !orders_.empty(); });
      if (stopping_) return;
      order = std::move(orders_.front());
      orders_.pop_front();
    }
    read_blocks(order);
    read_full(order);
    read_tail(order);  // also beside a whole state, which is of no use when the prompt goes on otherwise
    {
      const std::lock_guard lock(mutex_);
      finished_.push_back(std::move(order.fetch));
      --num_under_way_;
    }
    done_.notify_all();
  }
}

void StoreTier::read_blocks(Order& order) {
  StoreFetch& fetch = order.fetch;
  if (fetch.blocks.empty()) return;
  fetch.bytes.resize(static_cast<size_t>(fetch.blocks.size() * options_.block_bytes));
  StoreGet got = store_.get({.scope = order.scope,
                             .keys = fetch.keys,
                             .blocks = fetch.blocks,
                             .block_bytes = options_.block_bytes,
                             .exact_only = order.exact_only},
                            fetch.bytes);
  fetch.blocks.end = fetch.blocks.begin + got.num_blocks;
  fetch.fast_replay = std::move(got.fast_replay);
  if (got.reason != StoreMiss::kNone) fetch.reason = got.reason;
}

// Without one the window before the hit is run again: nothing but time is lost, so a tail that cannot be read is none.
void StoreTier::read_tail(Order& order) {
  StoreFetch& fetch = order.fetch;
  const int64_t last = std::min(order.num_tail_max, fetch.blocks.end);
  for (int64_t n = last; n > std::max<int64_t>(0, last - kTailsLookedFor); --n) {
    const BlockKey& key = fetch.keys[static_cast<size_t>(n - 1)];
    if (!store_.holds_record(order.scope, RecordKind::kTail, key)) continue;
    BlockStore::Record record = store_.get_record(order.scope, RecordKind::kTail, key);
    if (record.bytes.empty()) continue;
    auto bytes = std::make_shared<const std::vector<uint8_t>>(std::move(record.bytes));
    fetch.tail = FoundTail{{.bytes = std::move(bytes), .behind_fast_replay = false}, n};
    return;
  }
}

// Of no use when a block before it could not be read.
void StoreTier::read_full(Order& order) {
  StoreFetch& fetch = order.fetch;
  if (fetch.num_full_blocks == 0 || fetch.blocks.end != fetch.num_full_blocks) return;
  fetch.full = store_.get_record(order.scope, RecordKind::kFull, fetch.keys.back()).bytes;
}

std::vector<StoreFetch> StoreTier::take_finished() {
  const std::lock_guard lock(mutex_);
  return std::exchange(finished_, {});
}

void StoreTier::wait(int64_t timeout_ns) {
  std::unique_lock lock(mutex_);
  done_.wait_for(lock, std::chrono::nanoseconds(timeout_ns), [this] { return !finished_.empty(); });
}

int64_t StoreTier::num_under_way() const {
  const std::lock_guard lock(mutex_);
  return num_under_way_;
}

bool StoreTier::pin(std::span<const BlockKey> keys, bool is_pinned) {
  if (is_pinned) return store_.pin(keys);
  store_.unpin(keys);
  return true;
}

bool StoreTier::has(const std::string& tenant_salt, std::span<const BlockKey> keys, bool exact_only) {
  return store_.holds(scope_of(tenant_salt), keys, exact_only);
}

void StoreTier::save(const std::string& tenant_salt, std::span<const BlockKey> keys, Range blocks,
                     std::vector<uint8_t> bytes, bool behind_fast_replay, TtlClass ttl_class) {
  StorePut put{.scope = scope_of(tenant_salt),
               .ttl_class = ttl_class,
               .keys = {keys.begin(), keys.begin() + blocks.end},
               .first_block = blocks.begin,
               .block_bytes = options_.block_bytes,
               .bytes = std::move(bytes)};
  if (behind_fast_replay) put.fast_replay.assign(static_cast<size_t>(blocks.size()), 1);
  store_.put(std::move(put));
}

bool StoreTier::has_full(const std::string& tenant_salt, const BlockKey& key) {
  return store_.holds_record(scope_of(tenant_salt), RecordKind::kFull, key);
}

void StoreTier::save_full(const std::string& tenant_salt, const BlockKey& key, std::vector<uint8_t> bytes) {
  if (static_cast<int64_t>(bytes.size()) > kBlockBytesMax) return;
  store_.put_record(scope_of(tenant_salt), RecordKind::kFull, TtlClass::kTail, key, std::move(bytes));
}

void StoreTier::save_tail(const std::string& tenant_salt, const BlockKey& key, const TailBytes& bytes) {
  const StoreScope& scope = scope_of(tenant_salt);
  if (store_.holds_record(scope, RecordKind::kTail, key)) return;
  store_.put_record(scope, RecordKind::kTail, TtlClass::kTail, key, *bytes);
}

}  // namespace deepinfer
