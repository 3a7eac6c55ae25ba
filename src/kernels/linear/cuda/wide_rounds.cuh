// SPDX-License-Identifier: MIT
// How a block of wide_tile.cuh goes through its tiles, whatever they are: roles of its warps, segments, clusters.
#pragma once

#include "kernels/linear/cuda/overlapped_launch.cuh"
#include "kernels/linear/cuda/wide_tile.cuh"

namespace deepinfer {

// Sums of the segments so far where they do not fit the registers (tiles of 256 tokens), in memory of the block:
// kTokens / 8 float4 of every thread.
struct SegmentStore {
  float4* data;
  __device__ float4& at(int i) const {
    return data[(int64_t{blockIdx.x} * 32 + i) * kWideConsumers + threadIdx.x];
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

// Calls run(constant number of tokens): all of a tile's, or a quarter where that holds it.
template <typename W, typename Run>
__device__ void with_tokens(int num_groups, const Run& run) {
  constexpr int kFewer = W::kTokens / 32 * 8;  // ptxas gives up on overlapping products with more than two kinds of them
  if (num_groups > kFewer / 8) return run(std::integral_constant<int, W::kTokens>{});
  run(std::integral_constant<int, kFewer>{});
}

inline constexpr int kWideConsumerRegisters = 224, kWideLoaderRegisters = 56;  // of a thread

// One block's life. operands(tile) and run(tile, x place, w place, registers): tiles [first, num_tiles) in steps.
template <typename W, typename Operands, typename Run>
__device__ void run_tiles(typename W::Shared& s, int first, int num_tiles, int step, bool weights_wait,
                          const Operands& operands, const Run& run) {
  if (threadIdx.x >= kWideConsumers) {
    give_registers<kWideLoaderRegisters>();
    const int thread = static_cast<int>(threadIdx.x) - kWideConsumers;
    if (thread == 0 || weights_wait) wait_for_kernels_before();  // panels come from the kernel before
    RingPlace w_at, x_at;
    for (int tile = first; tile < num_tiles; tile += step) produce<W>(s, w_at, x_at, operands(tile), thread);
    asm volatile("cp.async.wait_all;" ::: "memory");
    __syncwarp();
  } else {
    take_registers<kWideConsumerRegisters>();
    wait_for_kernels_before();
    RingPlace x_at, w_at;
    WideRegisters<W> registers;
    for (int tile = first; tile < num_tiles; tile += step) run(tile, x_at, w_at, registers);
  }
}

}  // namespace deepinfer
