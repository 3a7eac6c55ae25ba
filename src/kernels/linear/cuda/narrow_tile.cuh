// SPDX-License-Identifier: MIT
// Products for up to eight tokens, at the speed of memory: mma.sync m16n8k16. A warp has sixteen outputs and one segment
// of the columns; the warps of a block that share outputs add their sums in order at the end. Sums run as in
// wide_tile.cuh: both give the same bits.
//
// A thread's codes wait in shared memory, kSlots chunks of them under way at any time; each thread reads what it
// has copied itself, so nothing is waited for but the copies.
#pragma once

#include "kernels/linear/cuda/bulk_copy.cuh"
#include "kernels/linear/cuda/panel_activations.cuh"
#include "kernels/linear/cuda/tensor_tile.cuh"
#include "kernels/linear/cuda/unpack.cuh"

namespace deepinfer {

inline constexpr int kNarrowTokens = 8;
inline constexpr int kNarrowChunkBytes = 32 * (64 + 16);  // of a warp: 128 bytes of each of sixteen rows, and scales

// Where a thread's sixteen bytes and scales of rows g and g + 8 are.
struct NarrowRows {
  const uint8_t *low, *high, *low_scales, *high_scales;
};

// Rows r of matrix m and r_high of m_high (the same, or gate and up).
template <WeightKind kKind>
__device__ NarrowRows narrow_rows(const DeviceMatrix& m, int64_t r, const DeviceMatrix& m_high, int64_t r_high) {
  const int c = static_cast<int>(threadIdx.x) % 4;
  const int64_t row_bytes = Packing<kKind>::bytes(m.in), scales = m.in / 32;
  constexpr int kScaleRows = kKind == WeightKind::kFp4 ? 1 : 32;
  return {m.codes + r * row_bytes + 16 * c, m_high.codes + r_high * row_bytes + 16 * c,
          m.scales + r / kScaleRows * scales, m_high.scales + r_high / kScaleRows * scales};
}

// Columns in 64 bytes of a row.
template <WeightKind kKind>
inline constexpr int kNarrowRun = kKind == WeightKind::kFp4 ? 128 : kKind == WeightKind::kFp8 ? 64 : 32;

template <WeightKind kKind, int kSlots>
struct Narrow {
  static constexpr int kRun = kNarrowRun<kKind>;
  static constexpr int kColumns = 2 * kRun, kUnit = 256;  // of a chunk; segments are whole units
  NarrowRows rows;
  uint8_t* slots;  // of the warp
  int begin, end;  // chunks

  // The warp's part of a matrix of `in` columns, as segment `segment` of `segments`. Starts copying.
  __device__ Narrow(const NarrowRows& r, uint8_t* shared, int in, int segment, int segments)
      : rows(r), slots(shared + threadIdx.x / 32 * (kSlots * kNarrowChunkBytes)) {
    const int units = in / kUnit;
    begin = segment * units / segments * (kUnit / kColumns), end = (segment + 1) * units / segments * (kUnit / kColumns);
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
      if constexpr (kKind == WeightKind::kFp4) {
        copy_8(to + 2048 + 8 * lane, rows.low_scales + 8 * n);
        copy_8(to + 2304 + 8 * lane, rows.high_scales + 8 * n);
      } else if constexpr (kKind == WeightKind::kFp8) {
        copy_4(to + 2048 + 4 * lane, rows.low_scales + 4 * n);
        copy_4(to + 2304 + 4 * lane, rows.high_scales + 4 * n);
      }
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }

  // x: the thread's token in shared memory, at its columns of the first run. While the products of a run go on, the next
  // run is unpacked: nothing in between branches or waits.
  __device__ void multiply(const uint8_t* x, float (&sums)[4]) {
    sums[0] = sums[1] = sums[2] = sums[3] = 0;
    uint32_t first[kProducts][4], second[kProducts][4], rest = 0;
    int slot = 0;
    wait_for_oldest();
    unpack(read(0, 0), first, rest);
    for (int n = begin; n < end; ++n) {
      const int next = slot + 1 == kSlots ? 0 : slot + 1;
      const Run second_run = read(slot, 1);
      multiply_run(first, x + 4 * kRun * n, sums);
      unpack(second_run, second, rest);
      copy_chunk(n + kSlots, slot);
      wait_for_oldest();
      const Run next_run = read(next, 0);  // behind the end: nothing that is used
      multiply_run(second, x + 4 * kRun * n + 2 * kRun, sums);
      uint32_t next_rest = 0;
      unpack(next_run, first, next_rest);
      if (n + 1 < end) rest |= next_rest;
      slot = next;
    }
    if (__any_sync(0xFFFFFFFFu, rest != 0)) multiply_beyond(x, sums);
  }

 private:
  static constexpr int kProducts = kRun / 16;
  struct Run {
    uint4 low, high;
    uint32_t low_scale, high_scale;
  };

  __device__ static void wait_for_oldest() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kSlots - 1) : "memory");
  }
  __device__ Run read(int slot, int run) const {
    const int lane = static_cast<int>(threadIdx.x) % 32, c = lane % 4;
    const uint8_t* from = slots + slot * kNarrowChunkBytes;
    const int at = kKind == WeightKind::kFp4 ? 8 * lane + 4 * run + c : 4 * lane + 2 * run + c / 2;
    return {*reinterpret_cast<const uint4*>(from + 1024 * run + 16 * lane),
            *reinterpret_cast<const uint4*>(from + 1024 * run + 512 + 16 * lane),
            kKind == WeightKind::kBf16 ? 0u : from[2048 + at], kKind == WeightKind::kBf16 ? 0u : from[2304 + at]};
  }
  __device__ static void unpack(const Run& run, uint32_t (&a)[kProducts][4], uint32_t& rest, bool with_rest = false) {
    if constexpr (kKind == WeightKind::kBf16) {
      a[0][0] = run.low.x, a[0][1] = run.high.x, a[0][2] = run.low.y, a[0][3] = run.high.y;
      a[1][0] = run.low.z, a[1][1] = run.high.z, a[1][2] = run.low.w, a[1][3] = run.high.w;
    } else {
      PackedWeights<kKind> packed{{run.low}, {run.high}, {}, {}};
      packed.set_scales(run.low_scale, run.high_scale);
      rest |= packed.rest();
#pragma unroll
      for (int half = 0; half < kProducts / 4; ++half) {
        uint32_t four[4][4];
        unpack_panel(packed, half, four);
        if (with_rest) unpack_rest(packed, four);
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
          for (int i = 0; i < 4; ++i) a[4 * half + k][i] = four[k][i];
      }
    }
  }
  __device__ static void multiply_run(const uint32_t (&a)[kProducts][4], const uint8_t* x, float (&sums)[4]) {
#pragma unroll
    for (int k = 0; k < kProducts; k += 2) {
      const uint4 b = *reinterpret_cast<const uint4*>(x + 8 * k);
      multiply_16x8x16(sums, a[k], b.x, b.y);
      multiply_16x8x16(sums, a[k + 1], b.z, b.w);
    }
  }
  // The same again for scales that no real model has, slowly.
  __device__ __noinline__ void multiply_beyond(const uint8_t* x, float (&sums)[4]) {
    sums[0] = sums[1] = sums[2] = sums[3] = 0;
    asm volatile("cp.async.wait_group 0;" ::: "memory");
    for (int n = begin; n < end; ++n) {
      copy_chunk(n, 0);
      asm volatile("cp.async.wait_group 0;" ::: "memory");
      for (int run = 0; run < 2; ++run) {
        uint32_t a[kProducts][4], rest = 0;
        unpack(read(0, run), a, rest, true);
        multiply_run(a, x + 4 * kRun * n + 2 * kRun * run, sums);
      }
    }
  }
};

// Bytes of a token in shared memory: odd in units of 16, so that tokens fall into different banks.
__host__ __device__ constexpr int narrow_pitch(int in) { return 2 * in + 16; }

// Tokens of bf16 into shared memory. The whole block calls; in: a multiple of 256. `is_ready`: they are rounded and in
// the order that the weights are unpacked in, and aligned; else they are rounded here where asked for, and put in order.
struct NarrowStaging {
  bool is_ready, round, is_aligned;
};
template <WeightKind kKind, typename Row>
__device__ void stage_narrow(uint8_t* to, int num_tokens, int in, const NarrowStaging& how, const Row& row) {
  constexpr int kAtOnce = 4;  // loads under way
  const int pieces = in / 8, total = num_tokens * pieces, step = static_cast<int>(blockDim.x);
  if (how.is_ready) {
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
      uint4 v = how.round ? round_to_e4m3_by_four(values[u]) : values[u];
      if constexpr (kKind == WeightKind::kFp4) v = in_fp4_order(v);
      *reinterpret_cast<uint4*>(to + i / pieces * narrow_pitch(in) + 16 * (i % pieces)) = v;
    }
  }
}
// A thread's token there, at its columns of the first run. Tokens beyond the last read the last.
template <WeightKind kKind>
__device__ const uint8_t* narrow_x(const uint8_t* tokens, int num_tokens, int in) {
  const int g = static_cast<int>(threadIdx.x) % 32 / 4, c = static_cast<int>(threadIdx.x) % 4;
  return tokens + min(g, num_tokens - 1) * narrow_pitch(in) + kNarrowRun<kKind> / 2 * c;
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
