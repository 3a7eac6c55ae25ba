// SPDX-License-Identifier: MIT
// Products of bf16 matrices for up to eight tokens, at the speed of memory: mma.sync m16n8k16. A warp has sixteen outputs
// and one segment of the columns; the warps of a block that share outputs add their sums in order at the end. Sums run as in
// wide_tile.cuh: both give the same bits.
//
// A thread's codes wait in shared memory, kSlots chunks of them under way at any time; each thread reads what it
// has copied itself, so nothing is waited for but the copies.
#pragma once

#include "kernels/linear/cuda/bulk_copy.cuh"
#include "kernels/linear/cuda/panel_activations.cuh"
#include "kernels/linear/cuda/tensor_tile.cuh"

namespace deepinfer {

inline constexpr int kNarrowTokens = 8;
inline constexpr int kNarrowRun = 32, kNarrowChunk = 2 * kNarrowRun, kNarrowUnit = 256;  // columns; segments are whole units
inline constexpr int kNarrowChunkBytes = 32 * 64;  // of a warp: 128 bytes of each of sixteen rows

// Where a thread's sixteen bytes of rows g and g + 8 are: of rows r and r_high of the matrix.
struct NarrowRows {
  const uint8_t *low, *high;
};
__device__ inline NarrowRows narrow_rows(const DeviceMatrix& m, int64_t r, int64_t r_high) {
  const int c = static_cast<int>(threadIdx.x) % 4;
  const int64_t row_bytes = 2 * int64_t{m.in};
  return {m.codes + r * row_bytes + 16 * c, m.codes + r_high * row_bytes + 16 * c};
}

template <int kSlots>
struct Narrow {
  NarrowRows rows;
  uint8_t* slots;  // of the warp
  int begin, end;  // chunks

  // The warp's part of a matrix of `in` columns, as segment `segment` of `segments`. Starts copying.
  __device__ Narrow(const NarrowRows& r, uint8_t* shared, int in, int segment, int segments)
      : rows(r), slots(shared + threadIdx.x / 32 * (kSlots * kNarrowChunkBytes)) {
    constexpr int kChunks = kNarrowUnit / kNarrowChunk;
    const int units = in / kNarrowUnit;
    begin = segment * units / segments * kChunks, end = (segment + 1) * units / segments * kChunks;
    for (int n = 0; n < kSlots; ++n) copy_chunk(begin + n, n);
  }
  // A group of copies, empty behind the end.
  __device__ void copy_chunk(int n, int slot) {
    if (n < end) {
      const int lane = static_cast<int>(threadIdx.x) % 32;
      uint8_t* to = slots + slot * kNarrowChunkBytes;
#pragma unroll
      for (int run = 0; run < 2; ++run) {
        copy_16(to + 1024 * run + 16 * lane, rows.low + 128 * n + 64 * run);
        copy_16(to + 1024 * run + 512 + 16 * lane, rows.high + 128 * n + 64 * run);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }

  // x: the thread's token in shared memory, at its columns of the first run. While the products of a run go on, the next
  // run is unpacked: nothing in between branches or waits.
  __device__ void multiply(const uint8_t* x, float (&sums)[4]) {
    sums[0] = sums[1] = sums[2] = sums[3] = 0;
    uint32_t first[kProducts][4], second[kProducts][4];
    int slot = 0;
    wait_for_oldest();
    read(0, 0, first);
    for (int n = begin; n < end; ++n) {
      const int next = slot + 1 == kSlots ? 0 : slot + 1;
      read(slot, 1, second);
      multiply_run(first, x + 4 * kNarrowRun * n, sums);
      copy_chunk(n + kSlots, slot);
      wait_for_oldest();
      read(next, 0, first);  // behind the end: nothing that is used
      multiply_run(second, x + 4 * kNarrowRun * n + 2 * kNarrowRun, sums);
      slot = next;
    }
  }

 private:
  static constexpr int kProducts = kNarrowRun / 16;

  __device__ static void wait_for_oldest() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kSlots - 1) : "memory");
  }
  __device__ void read(int slot, int run, uint32_t (&a)[kProducts][4]) const {
    const uint8_t* from = slots + slot * kNarrowChunkBytes + 1024 * run + 16 * (threadIdx.x % 32);
    const uint4 low = *reinterpret_cast<const uint4*>(from), high = *reinterpret_cast<const uint4*>(from + 512);
    a[0][0] = low.x, a[0][1] = high.x, a[0][2] = low.y, a[0][3] = high.y;
    a[1][0] = low.z, a[1][1] = high.z, a[1][2] = low.w, a[1][3] = high.w;
  }
  __device__ static void multiply_run(const uint32_t (&a)[kProducts][4], const uint8_t* x, float (&sums)[4]) {
#pragma unroll
    for (int k = 0; k < kProducts; k += 2) {
      const uint4 b = *reinterpret_cast<const uint4*>(x + 8 * k);
      multiply_16x8x16(sums, a[k], b.x, b.y);
      multiply_16x8x16(sums, a[k + 1], b.z, b.w);
    }
  }
};

// Bytes of a token in shared memory: odd in units of 16, so that tokens fall into different banks.
__host__ __device__ constexpr int narrow_pitch(int in) { return 2 * in + 16; }

// Tokens of bf16 into shared memory. The whole block calls; in: a multiple of 256. `round`: to e4m3 on the way.
struct NarrowStaging {
  bool round, is_aligned;
};
template <typename Row>
__device__ void stage_narrow(uint8_t* to, int num_tokens, int in, const NarrowStaging& how, const Row& row) {
  constexpr int kAtOnce = 4;  // loads under way
  const int pieces = in / 8, total = num_tokens * pieces, step = static_cast<int>(blockDim.x);
  if (how.is_aligned && !how.round) {
    for (int i = static_cast<int>(threadIdx.x); i < total; i += step)
      copy_16(to + i / pieces * narrow_pitch(in) + 16 * (i % pieces), row(i / pieces) + 8 * (i % pieces));
    asm volatile("cp.async.commit_group; cp.async.wait_group 0;" ::: "memory");
    return;
  }
  for (int first = static_cast<int>(threadIdx.x); first < total; first += kAtOnce * step) {
    uint4 values[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u)
      if (const int i = first + u * step; i < total)
        values[u] = load_eight(row(i / pieces) + 8 * (i % pieces), how.is_aligned);
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int i = first + u * step;
      if (i >= total) break;
      *reinterpret_cast<uint4*>(to + i / pieces * narrow_pitch(in) + 16 * (i % pieces)) =
          how.round ? round_to_e4m3_by_four(values[u]) : values[u];
    }
  }
}
// A thread's token there, at its columns of the first run. Tokens beyond the last read the last.
__device__ inline const uint8_t* narrow_x(const uint8_t* tokens, int num_tokens, int in) {
  const int g = static_cast<int>(threadIdx.x) % 32 / 4, c = static_cast<int>(threadIdx.x) % 4;
  return tokens + min(g, num_tokens - 1) * narrow_pitch(in) + kNarrowRun / 2 * c;
}

// Adds the segments' sums, in order, on the warps of the first. parts: a float of every thread times four. The whole
// block calls; warp w has segment w % segments.
__device__ inline void add_segments(float* parts, int segments, float (&sums)[4]) {
  if (segments == 1) return;
#pragma unroll
  for (int i = 0; i < 4; ++i) parts[i * blockDim.x + threadIdx.x] = sums[i];
  __syncthreads();
  if (threadIdx.x / 32 % segments != 0) return;
  for (int s = 1; s < segments; ++s)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] += parts[i * blockDim.x + threadIdx.x + 32 * s];
}

}  // namespace deepinfer
