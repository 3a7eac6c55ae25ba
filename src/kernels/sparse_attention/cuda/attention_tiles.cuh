// SPDX-License-Identifier: MIT
// What the warpgroups of attention on tensor cores share: shared memory, barriers, the pieces of work.
#pragma once

#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/sparse_attention/cuda/attention_entries.cuh"

namespace deepinfer {
namespace attention {

constexpr int kHeads = 64, kEntriesMax = 768, kGroupThreads = 128, kProducers = 256, kThreads = 512;
constexpr int kHalves = 2, kRowsEach = kTileEntries / kHalves / (kProducers / 32);  // of a warp, in half a tile
constexpr int kProducerRegisters = 56, kConsumerRegisters = 200;                    // of 65,536: 128 a thread at launch
constexpr int kColumnsEach = kTileColumns / 2;
constexpr float kLog2E = 1.44269504f;
enum NamedBarrier { kListed = 1, kFirstWeighed, kSecondWeighed, kOwnWeights };  // and kOwnWeights + 1

struct Note {  // of a tile in shared memory
  uint32_t present[2];
  int is_last;  // of its token, it or the tile behind it
};

struct TokenWindow {  // what a token says, as copied
  int32_t lane, end, num_fresh, begin, block_begin;
};

struct Shared {
  alignas(1024) uint8_t q[kTileBytes];
  alignas(1024) uint8_t entries[2][kTileBytes];
  alignas(1024) uint8_t weights[2][kPanelBytes];
  union {  // of entries, first what was found of them, then where they stand
    const uint8_t* rows[2][kEntriesMax];
    int2 found[2][kEntriesMax];
  };
  TokenWindow token[2];
  const uint8_t* no_rows[kRowsEach];  // of an empty tile
  uint32_t present[2][kEntriesMax / 32];
  float highest[2][kHeads], sum[2][kHeads], decay[2][kHeads];
  Note note[2];
  uint64_t full[2][kHalves], empty[2][kHalves], q_full, q_empty;  // of halves of tiles
};

__device__ inline void sync_threads(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void arrive_at(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ inline void show_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// What this warp wrote; the barrier counts warps.
__device__ inline void show_all(uint64_t& barrier) {
  show_to_products();
  __syncwarp();
  if (threadIdx.x % 32 == 0) arrive(barrier);
}
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Work item: 64 heads of a token.
struct Item {
  int32_t token, first_head;
};
__device__ inline Item item_of(const SparseAttentionParams& p, int i) {
  const uint32_t blocks = (static_cast<uint32_t>(p.q.size[1]) + kHeads - 1) / kHeads, n = static_cast<uint32_t>(i);
  return {static_cast<int32_t>(n / blocks), static_cast<int32_t>(n % blocks * kHeads)};
}
__device__ inline int num_tiles(const SparseAttentionParams& p) {
  return (static_cast<int>(num_entries(p)) + kTileEntries - 1) / kTileEntries;
}

}  // namespace attention
}  // namespace deepinfer
