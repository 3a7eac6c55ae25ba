// SPDX-License-Identifier: MIT
// The third tier: blocks on disks, behind device and host memory. What a prompt finds there beyond the other tiers is
// fetched before the scheduler sees the prompt, by a thread of its own, and enters the device's pool as cached blocks;
// so nothing downstream knows where a block came from. New full blocks are handed over as they are published, and never
// wait for a disk. Thread: plan; the fetching thread is inside.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "kv/tail_cache.h"
#include "store/block_store.h"

namespace deepinfer {

struct StoreTierOptions {
  int64_t block_bytes = 0;
  std::string model_revision;  // everything that decides what a block's bytes mean
  uint32_t cache_format = 1;
  int64_t blocks_min = 2;    // a shorter gain is computed again (serving.md 9.4: hits of one block save nothing)
  int64_t fetches_max = 64;  // waiting; more prompts go ahead without
};

// Blocks [blocks) of a chain, one behind the other.
struct StoreFetch {
  uint64_t ticket = 0;
  std::vector<BlockKey> keys;  // the chain up to blocks.end
  Range blocks;
  std::vector<uint8_t> bytes;
  std::vector<uint8_t> fast_replay;  // one a block
  StoreMiss reason = StoreMiss::kNone;
  std::vector<uint8_t>
      full;  // everything a sequence had behind num_full_blocks blocks and less than one more; or empty
  int64_t num_full_blocks = 0;
  std::optional<FoundTail> tail;  // the window state at the end of block num_blocks - 1, where one was stored
};

// What a prompt asks the store for.
struct StoreAsk {
  std::string tenant_salt;
  bool tenant_was_deleted = false;  // its earlier data: a miss says so
  std::span<const BlockKey> keys;   // the chain from block 0 on
  int64_t num_present = 0;          // blocks that are at hand already
  int64_t num_usable = 0;           // in all
  int64_t num_tail_max = 0;         // blocks at whose end a tail is of use; 0 = none is
  bool exact_only = false;
};

class StoreTier {
 public:
  // `store` outlives it.
  StoreTier(BlockStore& store, StoreTierOptions options);
  ~StoreTier();

  // Starts fetching what the store has of a chain. False when that is not worth it: then `reason` says why the store's
  // prefix ends where it does. The last useful tail comes along, and with `exact_only` the whole state behind the last
  // block.
  bool start(uint64_t ticket, const StoreAsk& ask, StoreMiss& reason);
  std::vector<StoreFetch> take_finished();
  // A new fetch that has ended, or the time is over.
  void wait(int64_t timeout_ns);
  int64_t num_under_way() const;

  // Blocks [blocks) of a chain, just computed.
  void save(const std::string& tenant_salt, std::span<const BlockKey> keys, Range blocks, std::vector<uint8_t> bytes,
            bool behind_fast_replay, TtlClass ttl_class);
  // The window state at the end of a block, exact and so good for everyone; lives shortly. Not written twice.
  void save_tail(const std::string& tenant_salt, const BlockKey& key, const TailBytes& bytes);
  // The same of a whole sequence in the block behind that one.
  void save_full(const std::string& tenant_salt, const BlockKey& key, std::vector<uint8_t> bytes);
  bool has_full(const std::string& tenant_salt, const BlockKey& key);
  // Keeps what is and will be stored of these blocks beyond its time, until it is asked for the opposite. False when
  // too much is pinned already.
  bool pin(std::span<const BlockKey> keys, bool is_pinned);
  bool has(const std::string& tenant_salt, std::span<const BlockKey> keys, bool exact_only);

  BlockStore& store() { return store_; }
  int64_t block_bytes() const { return options_.block_bytes; }

 private:
  struct Order {
    StoreScope scope;
    StoreFetch fetch;
    int64_t num_tail_max = 0;
    bool exact_only = false;
  };
  void read_blocks(Order& order);
  void read_tail(Order& order);
  void read_full(Order& order);
  StoreScope& scope_of(const std::string& tenant_salt);
  void run();

  BlockStore& store_;
  const StoreTierOptions options_;
  std::unordered_map<std::string, StoreScope> scopes_;  // plan thread's

  mutable std::mutex mutex_;  // guards what stands below
  std::condition_variable wake_, done_;
  std::deque<Order> orders_;
  std::vector<StoreFetch> finished_;
  int64_t num_under_way_ = 0;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace deepinfer
