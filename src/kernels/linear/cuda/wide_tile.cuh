// SPDX-License-Identifier: MIT
// Products on warpgroups: out^T = W x^T. Weights stay packed until they are in registers, where they become bf16 (codes
// times scales are exact there); activations are panels (panel.cuh) in shared memory. Producer warps bring both in through
// rings of slots; two consumer warpgroups have 64 outputs each and up to kTokens tokens. A block runs through many tiles.
//
// The sums of one output run through the columns of a segment in one order, sixteen at a time, in one fp32 accumulator,
// and segments, which depend on the matrix alone, are added in order: neither the number of tokens nor a token's place
// decides anything. The blocks of a cluster either share panels (neighbouring outputs, each brings its part to all) or
// have a segment each.
#pragma once

#include "kernels/linear/cuda/bulk_copy.cuh"
#include "kernels/linear/cuda/panel.cuh"
#include "kernels/linear/cuda/turned_sums.cuh"
#include "kernels/linear/cuda/unpack.cuh"
#include "kernels/linear/cuda/warpgroup_product.cuh"

namespace deepinfer {

inline constexpr int kWideOut = 128, kWideConsumers = 256, kWideLoaders = 128,
                     kWideThreads = kWideConsumers + kWideLoaders;

// kFewer: tokens of the tiles that need no more; ptxas gives up on overlapping products with more than two kinds of them.
template <WeightKind kKindOf, int kTokensOf, int kFewerOf, int kXSlotsOf, int kWSlotsOf, int kSharersOf>
struct Wide {
  static constexpr WeightKind kKind = kKindOf;
  static constexpr int kTokens = kTokensOf, kFewer = kFewerOf, kXSlots = kXSlotsOf, kWSlots = kWSlotsOf, kSharers = kSharersOf;
  static constexpr bool kIsFp4 = kKind == WeightKind::kFp4, kKeepsTotals = kTokens <= 144;
  static constexpr int kRuns = kIsFp4 ? 1 : kKind == WeightKind::kFp8 ? 2 : 4;  // of 64 bytes of a row in a chunk
  static constexpr int kScaleWords = kIsFp4 ? kWideOut : kWideOut / 16;  // e4m3: rows 0..7 and 8..15 of sixteen apart
  struct Shared {
    alignas(1024) uint8_t x[kXSlots][kTokens * 128];
    alignas(16) uint8_t w[kWSlots][kRuns][kWideOut][64];
    alignas(16) uint32_t scales[kWSlots][kScaleWords];
    uint64_t x_full[kXSlots], x_empty[kXSlots], w_full[kWSlots], w_empty[kWSlots];
  };
};

// A tile's operands.
struct WideOperands {
  const uint8_t *codes, *scales;        // row 0 of the matrix
  const uint8_t *codes_up, *scales_up;  // another matrix: rows 8..15 of each sixteen come from it; or null
  int32_t in, first_row, last_row;      // rows [first_row, ..) of the tile; those behind last_row are read as it
  int32_t first_chunk, end_chunk;       // of 128 columns
  const uint8_t* x;                     // the tile's first group in panel 0
  int64_t panel_stride;                 // bytes
  int num_groups;                       // of eight tokens
  const uint32_t* ready;                // panels are there once this counter has the count; or null
  uint32_t ready_count;
};

// What a consumer thread has in registers. One for all tiles, of any number of tokens: products under way keep theirs.
template <typename W>
struct WideRegisters {
  float sums[W::kTokens / 2], totals[W::kKeepsTotals ? W::kTokens / 2 : 1];
  uint32_t a[2][4][4];
  template <int kTokens>
  __device__ float (&first())[kTokens / 2] {
    return reinterpret_cast<float (&)[kTokens / 2]>(sums);
  }
};

struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;
  __device__ void next(int slots) {
    if (++slot == slots) slot = 0, parity ^= 1;
  }
};

template <typename W>
__device__ void init_wide(typename W::Shared& s) {
  if (threadIdx.x != 0) return;
  for (int i = 0; i < W::kXSlots; ++i)
    init_barrier(s.x_full[i], 1), init_barrier(s.x_empty[i], kWideConsumers / 32 * W::kSharers);
  for (int i = 0; i < W::kWSlots; ++i)
    init_barrier(s.w_full[i], kWideLoaders), init_barrier(s.w_empty[i], kWideConsumers / 32);
  publish_barriers();
}

// One thread: a panel.
template <typename W>
__device__ void produce_panel(typename W::Shared& s, RingPlace& at, const WideOperands& t, int n) {
  wait_for(s.x_empty[at.slot], at.parity ^ 1);
  arrive_and_expect(s.x_full[at.slot], t.num_groups * kGroupBytes);
  const uint8_t* from = t.x + n * t.panel_stride;
  if constexpr (W::kSharers == 1) {
    copy_bulk(s.x[at.slot], from, t.num_groups * kGroupBytes, s.x_full[at.slot]);
  } else {
    const int part = (t.num_groups + W::kSharers - 1) / W::kSharers, first = static_cast<int>(cluster_rank()) * part;
    const int groups = min(part, t.num_groups - first);
    if (groups > 0)
      copy_bulk_to_cluster(&s.x[at.slot][first * kGroupBytes], from + first * kGroupBytes, groups * kGroupBytes,
                           s.x_full[at.slot], (1 << W::kSharers) - 1);
  }
  at.next(W::kXSlots);
}

// A loader thread's share of a tile's codes: the same sixteen bytes of every kRowStep-th row.
template <typename W>
struct CodeSource {
  static constexpr int kPieces = 4 * W::kRuns, kRowStep = kWideLoaders / kPieces, kRows = kWideOut / kRowStep;
  const uint8_t* from;  // of the first chunk
  int64_t row_bytes;
  int row, piece, num_rows;  // in the tile; num_rows: of the matrix from the tile's first on
  bool is_paired;

  __device__ CodeSource(const WideOperands& t, int thread)
      : row_bytes(Packing<W::kKind>::bytes(t.in)),
        row(thread / kPieces),
        piece(thread % kPieces),
        num_rows(t.last_row + 1 - t.first_row),
        is_paired(t.codes_up != nullptr) {
    const bool is_up = is_paired && row % 16 >= 8;  // kRowStep is a multiple of 16 where there are pairs
    from = (is_up ? t.codes_up : t.codes) + t.first_row * row_bytes + 16 * piece;
  }
  // The j-th row's, in bytes from `from`; a row beyond the last is read as the last.
  __device__ int32_t offset(int j) const {
    const int r = row + j * kRowStep;
    return min(is_paired ? r / 16 * 8 + r % 8 : r, num_rows - 1) * static_cast<int32_t>(row_bytes);
  }
};

// All loaders: codes and scales of a chunk; the first also starts its panels. thread: 0..127.
template <typename W>
__device__ void produce(typename W::Shared& s, RingPlace& w_at, RingPlace& x_at, const WideOperands& t, int thread) {
  const CodeSource<W> source(t, thread);
  int32_t offsets[CodeSource<W>::kRows];
#pragma unroll
  for (int j = 0; j < CodeSource<W>::kRows; ++j) offsets[j] = source.offset(j);
  const uint8_t* scales = nullptr;
  if (W::kKind != WeightKind::kBf16 && thread < W::kScaleWords) {
    const int r = W::kIsFp4 ? thread : thread / 2 * 32 + thread % 2 * 8;
    const bool is_up = t.codes_up && r % 16 >= 8;
    const int64_t row = min(t.first_row + (t.codes_up ? r / 16 * 8 + r % 8 : r), t.last_row);
    scales = (is_up ? t.scales_up : t.scales) + (W::kIsFp4 ? row : row / 32) * (t.in / 32);
  }
  for (int n = t.first_chunk; n < t.end_chunk; ++n) {
    wait_for(s.w_empty[w_at.slot], w_at.parity ^ 1);
    const uint8_t* from = source.from + n * (64 * W::kRuns);
    uint8_t* to = &s.w[w_at.slot][source.piece / 4][source.row][16 * (source.piece % 4)];
#pragma unroll
    for (int j = 0; j < CodeSource<W>::kRows; ++j) copy_16(to + j * CodeSource<W>::kRowStep * 64, from + offsets[j]);
    if (scales) copy_4(&s.scales[w_at.slot][thread], scales + 4 * n);
    arrive_after_copies(s.w_full[w_at.slot]);
    w_at.next(W::kWSlots);
    if (thread == 0) {
      produce_panel<W>(s, x_at, t, 2 * n);
      produce_panel<W>(s, x_at, t, 2 * n + 1);
    }
  }
}

template <typename W>
__device__ void release_panel(typename W::Shared& s, int slot) {
  if (threadIdx.x % 32 != 0) return;
  if constexpr (W::kSharers == 1) arrive(s.x_empty[slot]);
  else
    for (uint32_t rank = 0; rank < W::kSharers; ++rank) arrive_in(s.x_empty[slot], rank);
}

// A thread's packed weights of one panel (e2m1: of two) and its rows' scales.
template <typename W>
__device__ void read_weights(const typename W::Shared& s, int slot, int half, PackedWeights<W::kKind>& to) {
  const int c = static_cast<int>(threadIdx.x) % 4, row = static_cast<int>(threadIdx.x) / 32 * 16 +
                                                        static_cast<int>(threadIdx.x) % 32 / 4;
  const auto sixteen = [&](int run, int r) { return *reinterpret_cast<const uint4*>(&s.w[slot][run][r][16 * c]); };
  if constexpr (W::kKind == WeightKind::kFp4) {
    if (half == 1) return;
    to.set_scales(s.scales[slot][row] >> (8 * c) & 0xFF, s.scales[slot][row + 8] >> (8 * c) & 0xFF);
    to.low[0] = sixteen(0, row), to.high[0] = sixteen(0, row + 8);
  } else if constexpr (W::kKind == WeightKind::kFp8) {
    const int shift = 16 * half + c / 2 * 8;
    to.set_scales(s.scales[slot][row / 32 * 2] >> shift & 0xFF, s.scales[slot][row / 32 * 2 + 1] >> shift & 0xFF);
    to.low[0] = sixteen(half, row), to.high[0] = sixteen(half, row + 8);
  } else {
    for (int i = 0; i < 2; ++i) to.low[i] = sixteen(2 * half + i, row), to.high[i] = sixteen(2 * half + i, row + 8);
  }
}

// Adds the products of 16 columns of a panel: more than 256 tokens are two products of half of them, so that weights are
// unpacked once for all.
template <int kTokens>
__device__ __forceinline__ void multiply_columns(float (&sums)[kTokens / 2], const uint32_t (&a)[4], uint32_t panel, int k) {
  if constexpr (kTokens <= 256) {
    wgmma_bf16(sums, a, panel_descriptor(panel, k));
  } else {
    constexpr int kHalf = kTokens / 2;
    wgmma_bf16(reinterpret_cast<float(&)[kHalf / 2]>(sums[0]), a, panel_descriptor(panel, k));
    wgmma_bf16(reinterpret_cast<float(&)[kHalf / 2]>(sums[kHalf / 2]), a, panel_descriptor(panel + 128 * kHalf, k));
  }
}

// The consumers' part of a tile or a segment of it: sums of 64 outputs of a warpgroup and kTokens tokens.
template <typename W, int kTokens>
__device__ void multiply_wide(typename W::Shared& s, RingPlace& x_at, RingPlace& w_at, int chunks,
                              WideRegisters<W>& registers) {
  PackedWeights<W::kKind> packed;
  packed.set_scales(kBf16One * 0x10001u * gridDim.z, 0);  // bf16 has none: ones that ptxas does not see through
  auto& sums = registers.template first<kTokens>();
  auto& a = registers.a;
  int before[2] = {0, 0};  // slots of the last two panels
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) sums[i] = 0;
  for (int n = 0; n < chunks; ++n) {
    wait_for(s.w_full[w_at.slot], w_at.parity);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      read_weights<W>(s, w_at.slot, half, packed);
      wait_for_products<1>();  // a[half] is free
      if (n > 0) release_panel<W>(s, before[half]);
      unpack_panel(packed, half, a[half]);
      if (packed.is_beyond()) unpack_beyond(packed, half, a[half]);
      if (half == 1) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) arrive(s.w_empty[w_at.slot]);
      }
      wait_for(s.x_full[x_at.slot], x_at.parity);
      const uint32_t panel = shared_address(s.x[x_at.slot]);
      if constexpr (W::kKind == WeightKind::kBf16)
#pragma unroll
        for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(a[half][i / 4][i % 4]));  // made before the first product
      fence_products();
#pragma unroll
      for (int k = 0; k < 4; ++k) multiply_columns<kTokens>(sums, a[half][k], panel, k);
      commit_products();
      before[half] = x_at.slot;
      x_at.next(W::kXSlots);
    }
    w_at.next(W::kWSlots);
  }
  wait_for_products<0>();
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) asm volatile("" : "+f"(sums[i])::"memory");  // nothing reads them earlier
  release_panel<W>(s, before[0]);
  release_panel<W>(s, before[1]);
}

template <int kRegisters>
__device__ void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

}  // namespace deepinfer
