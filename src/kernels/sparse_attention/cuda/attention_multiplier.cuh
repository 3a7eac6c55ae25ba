// SPDX-License-Identifier: MIT
// The two warpgroups that multiply for attention: scores of a tile each, softmax in the reference's order of tiles, and
// half of the output columns each.
#pragma once

#include "kernels/sparse_attention/cuda/attention_tiles.cuh"

namespace deepinfer {
namespace attention {

// panel_product.cuh has the instruction with twice as many outputs.
__device__ inline void wgmma_columns(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" DEEPINFER_NUMBERS_64
               "}, %64, %65, 1, 1, 1, 0, 1;"
               : DEEPINFER_SUMS_64(d, 0)
               : "l"(a), "l"(b));
}

// Of a thread: of the columns of its group, in parts: one instruction may have no more registers than a thread at
// launch.
constexpr int kParts = 2, kPartSums = 128 / kParts;
using Sums = float[kParts][kPartSums];

struct Running {
  float highest, sum;  // the maximum in powers of two
};

// Scores of a tile (thread: rows g and g + 8 of its warp, columns 8 j + 2 c and the next) become weights in shared
// memory.
__device__ inline void weigh(float (&scores)[32], const Note& note, float scale, int warp, int lane, uint8_t* weights,
                             Running (&running)[2], float (&decay)[2]) {
  const int g = lane / 4, c = lane % 4;
  if ((note.present[0] & note.present[1]) != 0xFFFFFFFFu) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int column = i / 4 * 8 + i % 2;  // + 2 c
      if ((note.present[column / 32] >> (column % 32 + 2 * c) & 1) == 0) scores[i] = -__int_as_float(0x7F800000);
    }
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float highest = scores[2 * half], sum = 0;
#pragma unroll
    for (int i = 0; i < 16; ++i) highest = fmaxf(highest, scores[i / 2 * 4 + 2 * half + i % 2]);
    for (int step = 1; step < 4; step *= 2) highest = fmaxf(highest, __shfl_xor_sync(0xFFFFFFFFu, highest, step));
    highest = fmaxf(running[half].highest, highest * scale);
    decay[half] = exp2_fast(running[half].highest - highest);
    const int row = 16 * warp + 8 * half + g;
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float first = exp2_fast(__fmaf_rn(scores[4 * j + 2 * half], scale, -highest));
      const float second = exp2_fast(__fmaf_rn(scores[4 * j + 2 * half + 1], scale, -highest));
      sum += first + second;
      *reinterpret_cast<__nv_bfloat162*>(weights + panel_offset(row, j) + 4 * c) = __floats2bfloat162_rn(first, second);
    }
    for (int step = 1; step < 4; step *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
    running[half] = {highest, __fmaf_rn(running[half].sum, decay[half], sum)};
  }
}

struct Multiplier {
  const SparseAttentionParams& p;
  Shared& s;
  int group, warp, lane;  // of the block: 0 or 1; of the warpgroup
  Running running[2];
  float decay[2];

  __device__ int row(int half) const { return 16 * warp + 8 * half + lane / 4; }

  __device__ void score(float (&scores)[32]) {
    const uint64_t q = swizzled_descriptor(shared_address(s.q), 0);
    const uint64_t entries = swizzled_descriptor(shared_address(s.entries[group]), 0);
#pragma unroll
    for (int i = 0; i < 32; ++i) scores[i] = 0;
    hold(scores);
    fence_products();
#pragma unroll
    for (int at = 0; at < kTileBytes / 16; at += kPanelBytes / 16)
#pragma unroll
      for (int k = 0; k < 4; ++k) wgmma_rows(scores, q + at + 2 * k, entries + at + 2 * k);
    commit_products();
    wait_for_products<0>();
    hold(scores);
  }
  // Values that products make or use are neither used above this nor made below it.
  template <int kSize>
  __device__ static void hold(float (&values)[kSize]) {
#pragma unroll
    for (int i = 0; i < kSize; ++i) asm volatile("" : "+f"(values[i])::"memory");
  }
  __device__ void publish(int tile) {
    if (lane % 4 == 0)
      for (int half = 0; half < 2; ++half) {
        s.highest[tile][row(half)] = running[half].highest;
        s.sum[tile][row(half)] = running[half].sum;
        s.decay[tile][row(half)] = decay[half];
      }
    show_to_products();
  }
  __device__ void take_over(int tile) {
    for (int half = 0; half < 2; ++half) {
      running[half] = {s.highest[tile][row(half)], s.sum[tile][row(half)]};
      decay[half] = s.decay[tile][row(half)];
    }
  }
  // Always: a branch around it would let the compiler wait for every single product.
  __device__ void shrink(Sums& out) {
    hold_all(out);
#pragma unroll
    for (int i = 0; i < 128; ++i) out[i / kPartSums][i % kPartSums] *= decay[i / 2 % 2];
  }
  __device__ static void hold_all(Sums& out) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) hold(out[part]);
  }
  __device__ void add(Sums& out, int tile) {
    const uint64_t weights = swizzled_descriptor(shared_address(s.weights[tile]), 0);
    const uint64_t entries =
        swizzled_descriptor(shared_address(s.entries[tile]) + group * (kTileBytes / 2), kPanelBytes);
    hold_all(out);
    fence_products();
#pragma unroll
    for (int k = 0; k < kTileEntries / 16; ++k) {
#pragma unroll
      for (int part = 0; part < kParts; ++part)
        wgmma_columns(out[part], weights + k * 2,
                      entries + k * 16 * kPanelRowBytes / 16 + part * (kTileBytes / 2 / kParts / 16));
      if (k % 2 == 1) commit_products();  // half a tile
    }
  }
  __device__ void release(uint64_t& barrier) {
    if (lane == 0) arrive(barrier);
  }
};

// Scores of the group's own tile. Returns whether the token ends with this pair.
__device__ inline bool score_own(Multiplier& m, float (&scores)[32], Note& note, uint32_t parity) {
  Shared& s = m.s;
  for (int half = 0; half < kHalves; ++half) wait_for(s.full[m.group][half], parity);
  note = s.note[m.group];
  m.score(scores);
  if (note.is_last) m.release(s.q_empty);
  return note.is_last;
}
__device__ inline void weigh_own(Multiplier& m, float (&scores)[32], const Note& note, float scale) {
  weigh(scores, note, scale, m.warp, m.lane, m.s.weights[m.group], m.running, m.decay);
  m.publish(m.group);
  arrive_at(m.group == 0 ? kFirstWeighed : kSecondWeighed, 2 * kGroupThreads);
  sync_threads(kOwnWeights + m.group, kGroupThreads);
}
__device__ inline void add_tile(Multiplier& m, Sums& out, int tile) {
  m.shrink(out);
  m.add(out, tile);
  wait_for_products<1>();
  m.release(m.s.empty[tile][0]);
  wait_for_products<0>();
  m.release(m.s.empty[tile][1]);
  m.hold_all(out);
}

// Two tiles: group 0 scores the first, group 1 the second, behind it in the running maximum. Neither keeps the first
// any longer than its own products: the second may still have to be filled.
template <int kGroup>
__device__ bool add_pair(Multiplier& m, Sums& out, uint32_t parity, float scale) {
  float scores[32];
  Note note;
  bool is_last;
  if constexpr (kGroup == 0) {
    is_last = score_own(m, scores, note, parity);
    weigh_own(m, scores, note, scale);
    add_tile(m, out, 0);
    sync_threads(kSecondWeighed, 2 * kGroupThreads);
    m.take_over(1);
  } else {
    sync_threads(kFirstWeighed, 2 * kGroupThreads);
    m.take_over(0);
    add_tile(m, out, 0);
    is_last = score_own(m, scores, note, parity);
    weigh_own(m, scores, note, scale);
  }
  add_tile(m, out, 1);
  return is_last;
}

// Words of four threads: thread c gets word c of each.
__device__ inline uint4 exchange_words(uint4 v, int c) {
  const bool odd = c & 1, high = c & 2;
  const uint32_t a = __shfl_xor_sync(0xFFFFFFFFu, odd ? v.x : v.y, 1),
                 b = __shfl_xor_sync(0xFFFFFFFFu, odd ? v.z : v.w, 1);
  if (odd) v.x = a, v.z = b;
  else v.y = a, v.w = b;
  const uint32_t d = __shfl_xor_sync(0xFFFFFFFFu, high ? v.x : v.z, 2),
                 e = __shfl_xor_sync(0xFFFFFFFFu, high ? v.y : v.w, 2);
  if (high) v.x = d, v.y = e;
  else v.z = d, v.w = e;
  return v;
}

__device__ inline uint32_t two_bf16(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ inline void write_out(const Multiplier& m, const Item& item, const Sums& out) {
  const int c = m.lane % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t head = item.first_head + m.row(half);
    const bool exists = head < m.p.q.size[1];
    const float sink = exists ? m.p.sink[head] : 0.f;
    const float denominator = m.running[half].sum + exp2_fast(__fmaf_rn(sink, kLog2E, -m.running[half].highest));
    const float factor = kUnpackScale / denominator;
#pragma unroll
    for (int q = 0; q < 8; ++q) {
      uint32_t words[4];
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int at = 4 * (4 * q + j) + 2 * half;
        words[j] =
            two_bf16(out[at / kPartSums][at % kPartSums] * factor, out[at / kPartSums][at % kPartSums + 1] * factor);
      }
      const uint4 eight = restore_eight(exchange_words({words[0], words[1], words[2], words[3]}, c));
      if (exists)
        *reinterpret_cast<uint4*>(&m.p.out(item.token, head, m.group * kColumnsEach + 8 * (4 * q + c))) = eight;
    }
  }
}

template <int kGroup>
__device__ void multiply_tiles(const SparseAttentionParams& p, Shared& s, int num_items, int thread) {
  Multiplier m{p, s, kGroup, thread / 32, thread % 32, {}, {}};
  const float scale = p.scale * kLog2E * kUnpackScale;
  uint32_t num_pairs = 0, num_done = 0;
  for (int i = static_cast<int>(blockIdx.x); i < num_items; i += static_cast<int>(gridDim.x), ++num_done) {
    Sums out;
#pragma unroll
    for (int k = 0; k < 128; ++k) out[k / kPartSums][k % kPartSums] = 0;
    m.running[0] = m.running[1] = {-1e30f, 0.f};
    wait_for(s.q_full, num_done & 1);
    while (!add_pair<kGroup>(m, out, num_pairs++ & 1, scale)) {}
    write_out(m, item_of(p, i), out);
  }
}

}  // namespace attention
}  // namespace deepinfer
