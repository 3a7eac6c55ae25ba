// SPDX-License-Identifier: MIT
// How a block of wide_tile.cuh goes through its tiles, whatever they are: roles of its warps, segments, clusters.
#pragma once

#include "kernels/lanes/cuda/overlapped_launch.cuh"
#include "kernels/linear/cuda/wide_tile.cuh"

namespace deepinfer {

// Who has the segments of a tile: its block, one after another; the blocks of a cluster; or blocks that meet in memory.
enum class Segments { kInTurn, kInCluster, kInMemory };

// Sums of the segments so far where they do not fit the registers (tiles of more than 144 tokens), in memory of the block:
// kTokens / 8 float4 of every thread.
inline constexpr int64_t kStoreEights = 36;
struct SegmentStore {
  float4* data;
  __device__ float4& at(int i) const {
    return data[(blockIdx.x * kStoreEights + i) * kWideConsumers + threadIdx.x];
  }
};

template <typename W, int kTokens>
__device__ void multiply_segments(typename W::Shared& s, RingPlace& x_at, RingPlace& w_at, int chunks, int segments,
                                  const SegmentStore& store, WideRegisters<W>& registers) {
  auto& sums = registers.template first<kTokens>();
  const int units = chunks / 2;  // segments are whole units of 256 columns
  for (int segment = 0; segment < segments; ++segment) {
    multiply_wide<W, kTokens>(s, x_at, w_at, 2 * ((segment + 1) * units / segments - segment * units / segments), registers);
    if constexpr (W::kKeepsTotals) {
#pragma unroll
      for (int i = 0; i < kTokens / 2; ++i)
        registers.totals[i] = segment == 0 ? sums[i] : registers.totals[i] + sums[i];
    } else {
      if (segment > 0)
#pragma unroll
        for (int i = 0; i < kTokens / 8; ++i) {
          const float4 before = store.at(i);
          sums[4 * i] = before.x + sums[4 * i], sums[4 * i + 1] = before.y + sums[4 * i + 1];
          sums[4 * i + 2] = before.z + sums[4 * i + 2], sums[4 * i + 3] = before.w + sums[4 * i + 3];
        }
      if (segment + 1 < segments)
#pragma unroll
        for (int i = 0; i < kTokens / 8; ++i)
          store.at(i) = {sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]};
    }
  }
  if constexpr (W::kKeepsTotals)
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) sums[i] = registers.totals[i];
}

// Counters in memory by which warpgroups of different blocks wait for each other; the kernel before has set them to zero.
// Everything that the warpgroup wrote so far is seen by those who wait.
__device__ inline void count_warpgroup(uint32_t* counter) {
  wait_for_warpgroup();
  if (threadIdx.x % 128 != 0) return;
  __threadfence();
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
// One thread.
__device__ inline void wait_for_count(const uint32_t* counter, uint32_t count) {
  uint32_t so_far;
  do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(so_far) : "l"(counter) : "memory");
  while (so_far < count);
}

// Segments of a tile that different blocks have: each puts its sums into memory, and once all are there adds those of
// every `segments`-th eight tokens, from its own number on. All blocks of the grid are on the device at once (one a
// multiprocessor, clusters of two), more clusters than segments, and none waits for a tile behind its own, so that the wait
// ends. Two kernels that wait so must not run beside each other: products of packed weights belong to one stream.
struct SegmentParts {
  float4* data;       // [tiles of a block, segments, eights, kWideConsumers]
  uint32_t* arrived;  // [tiles of a block, warpgroups]
  int32_t segments, eights;
  __device__ float4& at(int tile, int segment, int eight) const {
    return data[((int64_t{tile} * segments + segment) * eights + eight) * kWideConsumers + threadIdx.x];
  }
};

template <int kTokens>
__device__ void put_segment(const SegmentParts& p, int tile, int segment, int num_groups, const float (&sums)[kTokens / 2]) {
#pragma unroll
  for (int i = 0; i < kTokens / 8; ++i)
    if (i < num_groups)
      p.at(tile, segment, i) = {sums[4 * i], sums[4 * i + 1], sums[4 * i + 2], sums[4 * i + 3]};
  uint32_t* arrived = p.arrived + 2 * tile + threadIdx.x / 128;
  count_warpgroup(arrived);
  if (threadIdx.x % 128 == 0) wait_for_count(arrived, static_cast<uint32_t>(p.segments));
  wait_for_warpgroup();
}

// Behind put_segment: emit(first eight, sums of it and of the three behind it that are the block's).
template <typename Emit>
__device__ void add_parts(const SegmentParts& p, int tile, int segment, int num_groups, const Emit& emit) {
  constexpr int kAtOnce = 3;  // segments whose sums are on their way together; some come twice, which is sooner than to ask
  const int64_t stride = int64_t{p.eights} * kWideConsumers;  // float4 of a segment
  const float4* from = &p.at(tile, 0, segment);
#pragma unroll 1
  for (int first = segment; first < num_groups; first += 4 * p.segments, from += 4 * p.segments * kWideConsumers) {
    float sums[16];
    const int left = (num_groups - first + p.segments - 1) / p.segments;
#pragma unroll 1
    for (int begin = 0; begin < p.segments; begin += kAtOnce) {
      float4 part[kAtOnce][4];
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s)
#pragma unroll
        for (int i = 0; i < 4; ++i)
          part[s][i] = __ldcg(from + min(begin + s, p.segments - 1) * stride + min(i, left - 1) * p.segments * kWideConsumers);
#pragma unroll
      for (int s = 0; s < kAtOnce; ++s)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float four[4] = {part[s][i].x, part[s][i].y, part[s][i].z, part[s][i].w};
#pragma unroll
          for (int j = 0; j < 4; ++j) {
            float& sum = sums[4 * i + j];
            if (s == 0) sum = begin == 0 ? four[j] : sum + four[j];
            else sum = begin + s < p.segments ? sum + four[j] : sum;
          }
        }
    }
    emit(first, sums);
  }
}

// The segments of a tile are the blocks of a cluster: adds their sums in order. A block gets those of every
// `segments`-th eight tokens, from its rank on. parts: float[kTokens / 2][kWideConsumers]. Followed by another
// wait_for_cluster, as parts are read by the others.
template <int kTokens>
__device__ void add_in_cluster(float* parts, int segments, float (&sums)[kTokens / 2]) {
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) parts[i * kWideConsumers + threadIdx.x] = sums[i];
  wait_for_cluster();
  const int rank = static_cast<int>(cluster_rank());
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) {
    if (i / 4 % segments != rank) continue;
    float sum = read_in_cluster(parts + i * kWideConsumers + threadIdx.x, 0);
    for (int segment = 1; segment < segments; ++segment)
      sum += read_in_cluster(parts + i * kWideConsumers + threadIdx.x, static_cast<uint32_t>(segment));
    sums[i] = sum;
  }
}

// Whether blocks have more to do at once where each has a segment: a matrix of few tiles. Times are rounds of blocks; two
// rounds of sums stay in the cache.
inline bool splits_fill(int64_t tiles, int segments) {
  const int64_t at_once = multiprocessor_count();
  const auto rounds = [&](int64_t units) { return (units + at_once - 1) / at_once; };
  return segments > 1 && tiles * segments <= 2 * at_once && rounds(tiles * segments) < segments * rounds(tiles);
}

// Calls run(constant number of tokens): all of a tile's, or the fewer where they hold it.
template <typename W, typename Run>
__device__ void with_tokens(int num_groups, const Run& run) {
  if constexpr (W::kFewer == W::kTokens) {
    run(std::integral_constant<int, W::kTokens>{});
  } else {
    if (num_groups > W::kFewer / 8) return run(std::integral_constant<int, W::kTokens>{});
    run(std::integral_constant<int, W::kFewer>{});
  }
}

inline constexpr int kWideConsumerRegisters = 224, kWideLoaderRegisters = 56;  // of a thread

// One block's life. unit(i): its i-th tile or segment, negative behind the last; operands(unit) and run(unit, x place, w
// place, registers).
template <typename W, typename Unit, typename Operands, typename Run>
__device__ void run_tiles(typename W::Shared& s, const Unit& unit, const Operands& operands, const Run& run) {
  if (threadIdx.x >= kWideConsumers) {
    give_registers<kWideLoaderRegisters>();
    const int thread = static_cast<int>(threadIdx.x) - kWideConsumers;
    if (thread == 0) wait_for_kernels_before();  // panels come from the kernel before
    RingPlace w_at, x_at;
    for (int i = 0, u; (u = unit(i)) >= 0; ++i) {
      const WideOperands o = operands(u);
      if (thread == 0 && o.ready) {
        wait_for_count(o.ready, o.ready_count);
        asm volatile("fence.proxy.async;" ::: "memory");
      }
      __syncwarp();
      produce<W>(s, w_at, x_at, o, thread);
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
  } else {
    take_registers<kWideConsumerRegisters>();
    wait_for_kernels_before();
    RingPlace x_at, w_at;
    WideRegisters<W> registers;
    for (int i = 0, u; (u = unit(i)) >= 0; ++i) run(u, x_at, w_at, registers);
  }
}

}  // namespace deepinfer
