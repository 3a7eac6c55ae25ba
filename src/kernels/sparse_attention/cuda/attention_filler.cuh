// SPDX-License-Identifier: MIT
// The warpgroups that fill shared memory for attention: a token's queries, the addresses of its entries, and the
// entries unpacked, half a tile after half a tile, with the rows of the next on their way meanwhile. What binds is how
// many instructions a row takes, so the loop over rows holds nothing else.
#pragma once

#include <utility>

#include "kernels/sparse_attention/cuda/attention_tiles.cuh"

namespace deepinfer {
namespace attention {

__device__ inline void wait_for_own_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

// A thread has piece `thread % 64` of every kHeadsAtOnce-th head: where the i-th stands in shared memory.
constexpr int kHeadsAtOnce = kProducers / 64;
__device__ inline uint32_t query_place(const Shared& s, int thread, int i) {
  const uint32_t piece = thread % 64u, head = thread / 64u;
  const uint32_t first =
      shared_address(s.q) + piece / 8 * kPanelBytes + head * kPanelRowBytes + ((piece ^ head) % 8 << 4);
  return (first + i * kHeadsAtOnce * kPanelRowBytes) ^ static_cast<uint32_t>(i * kHeadsAtOnce % 8 << 4);
}
__device__ inline void fetch_queries(const SparseAttentionParams& p, const Item& item, Shared& s, int thread) {
  static_assert(kTileColumns == 512);
  const int64_t stride = p.q.stride[1];
  const int head = thread / 64, left = static_cast<int>(p.q.size[1] - item.first_head) - head;
  const bf16* from = p.q.row(item.token) + (item.first_head + head) * stride + thread % 64 * 8;
#pragma unroll
  for (int i = 0; i < kHeads / kHeadsAtOnce; ++i, from += kHeadsAtOnce * stride) {
    const uint32_t to = query_place(s, thread, i),
                   bytes = kHeadsAtOnce * i < left ? 16 : 0;  // heads that there are not: zeros
    asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(bytes ? from : p.q.data),
                 "r"(bytes)
                 : "memory");
  }
}
// Into the second-level cache, while the token before is still under way.
__device__ inline void prefetch_queries(const SparseAttentionParams& p, const Item& item, int thread) {
  const int64_t head = item.first_head + thread;
  if (thread < kHeads && head < p.q.size[1])
    asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(&p.q(item.token, head, 0)), "n"(kTileColumns * 2));
}
// Of the pieces that the same thread fetched.
__device__ inline void permute_queries(Shared& s, int thread) {
  wait_for_own_copies();
#pragma unroll 4
  for (int i = 0; i < kHeads / kHeadsAtOnce; ++i) {
    const uint32_t at = query_place(s, thread, i);
    uint4 v;
    asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    store_16(at, permute_eight(v));
  }
  show_all(s.q_full);
}

static __device__ uint4 zero_row[kTileColumns / 16 + 1];  // stands for missing rows

// Lists the rows of a token in stages, one kind of copy each, so that none is waited for: what the token says and its
// selected groups, their blocks, then addresses (entry_list.h). A thread has the same entries in all.
struct Lister {
  const SparseAttentionParams& p;
  Shared& s;
  int thread;
  static constexpr int kStages = 3;

  __device__ int num_selected() const { return p.selected.data ? static_cast<int>(p.selected.size[1]) : 0; }
  __device__ void advance(int stage, const Item& item, int buffer) {
    if (stage == 0) begin(item, buffer);
    else if (stage == 1) find_blocks(buffer);
    else list(item, buffer);
  }
  __device__ void begin(const Item& item, int buffer) {
    prefetch_queries(p, item, thread);
    sync_threads(kListed, kProducers);  // the list before has been read
    const int32_t* said[] = {&p.lane(item.token), &p.window_end(item.token), &p.num_fresh(item.token),
                             p.window_begin.data ? &p.window_begin(item.token) : nullptr,
                             p.block_rows > 0 ? &p.block_begin(item.token) : nullptr};
    int32_t* const to = &s.token[buffer].lane;
#pragma unroll
    for (int i = 0; i < 5; ++i)
      if (thread == 16 * i && said[i]) copy_4(to + i, said[i]);
    const int32_t* selected = num_selected() > 0 ? p.selected.row(item.token) : nullptr;
    for (int e = thread; e < num_selected(); e += kProducers) copy_4(&s.found[buffer][p.window + e].x, selected + e);
  }
  __device__ void find_blocks(int buffer) {
    wait_for_own_copies();
    sync_threads(kListed, kProducers);
    if (num_selected() == 0) return;
    const int shift = __ffs(p.global.rows_per_block) - 1;  // a power of two
    const int32_t* table = p.global.block_table.row(s.token[buffer].lane);
    for (int e = thread; e < num_selected(); e += kProducers) {
      int2& found = s.found[buffer][p.window + e];
      copy_4(&found.y, table + (max(found.x, 0) >> shift));
    }
  }
  __device__ const uint8_t* window_row(const TokenWindow& t, int32_t token, int e) const {
    const int position = t.end - p.window + e, age = p.window - e;
    if (position < (p.window_begin.data ? max(t.begin, 0) : 0)) return nullptr;
    if (age <= t.num_fresh) return p.fresh.data + int64_t{token + 1 - age} * p.fresh.stride[0];
    const uint32_t slot = static_cast<uint32_t>(position) % static_cast<uint32_t>(max(p.ring.capacity, 1));
    return p.ring.base + t.lane * p.ring.lane_stride_bytes + slot * p.ring.row_stride_bytes;
  }
  __device__ const uint8_t* selected_row(int2 found) const {
    if (found.x == kNoEntry) return nullptr;
    const uint32_t row = static_cast<uint32_t>(found.x) & static_cast<uint32_t>(p.global.rows_per_block - 1);
    return p.global.base + found.y * p.global.block_stride_bytes +
           row * static_cast<uint32_t>(p.global.row_stride_bytes);
  }
  __device__ void list(const Item& item, int buffer) {
    wait_for_own_copies();
    const TokenWindow t = s.token[buffer];
    const int selected = num_selected(), behind = num_tiles(p) * kTileEntries - p.window;
#pragma unroll 1
    for (int e = thread; e < behind; e += kProducers) {
      const int row = e - selected;  // of the block
      keep(buffer, p.window + e,
           row < 0              ? selected_row(s.found[buffer][p.window + e])
           : row < p.block_rows ? p.fresh.data + int64_t{t.block_begin + row} * p.fresh.stride[0]
                                : nullptr);
    }
#pragma unroll 1
    for (int e = thread; e < p.window; e += kProducers) keep(buffer, e, window_row(t, item.token, e));
    sync_threads(kListed, kProducers);
  }
  // By whole warps: windows are whole tiles, and all is padded to them.
  __device__ void keep(int buffer, int e, const uint8_t* row) {
    s.rows[buffer][e] = row ? row : reinterpret_cast<const uint8_t*>(zero_row);
    const unsigned present = __ballot_sync(0xFFFFFFFFu, row != nullptr);
    if (e % 32 == 0) s.present[buffer][e / 32] = present;
  }
};

// The tiles of a listed token that hold an entry, a pair at a time: what lacks is empty.
struct Tiles {
  uint32_t set;
  int left;

  __device__ void list(const SparseAttentionParams& p, const Shared& s, int buffer, int lane) {
    const bool has_any = lane < num_tiles(p) && (s.present[buffer][2 * lane] | s.present[buffer][2 * lane + 1]) != 0;
    set = __ballot_sync(0xFFFFFFFFu, has_any);
    left = max(2, (__popc(set) + 1) / 2 * 2);
  }
  __device__ int take() {  // -1 = empty
    const int tile = __ffs(static_cast<int>(set)) - 1;
    set &= set - 1;
    --left;
    return tile;
  }
};

// A warp's rows of half a tile, packed, in registers. Lanes of FP4 rows have 8 bytes each, of FP8 rows 16.
struct PackedRows {
  uint32_t codes[kRowsEach][4], scale[kRowsEach];
  bool is_fp4;
};
struct Source {  // of the next rows
  const uint8_t* const* rows;
  uint32_t code_at, scale_at;
  bool is_fp4;
};

// Tiles of FP4 rows are those of selected entries.
struct Fp4Tiles {
  int begin, end;
};
__device__ inline Source source_of(const Fp4Tiles& fp4, const Shared& s, int buffer, int tile, int half, int warp,
                                   int lane) {
  Source from{};
  from.is_fp4 = tile >= fp4.begin && tile < fp4.end;
  from.rows =
      tile < 0 ? s.no_rows : s.rows[buffer] + tile * kTileEntries + half * (kTileEntries / kHalves) + kRowsEach * warp;
  from.code_at = static_cast<uint32_t>(lane << (from.is_fp4 ? 3 : 4));
  from.scale_at = static_cast<uint32_t>(from.is_fp4 ? kTileColumns / 2 + lane : kTileColumns + lane / 2);
  return from;
}

template <bool kIsFp4>
__device__ void load_rows(PackedRows& packed, const Source& from) {
#pragma unroll
  for (int r = 0; r < kRowsEach; ++r) {
    const uint8_t* row = from.rows[r];
    uint32_t(&codes)[4] = packed.codes[r];
    if constexpr (kIsFp4)
      asm volatile("ld.global.nc.v2.u32 {%0,%1}, [%2];" : "=r"(codes[0]), "=r"(codes[1]) : "l"(row + from.code_at));
    else
      asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
                   : "=r"(codes[0]), "=r"(codes[1]), "=r"(codes[2]), "=r"(codes[3])
                   : "l"(row + from.code_at));
    asm volatile("ld.global.nc.u8 %0, [%1];" : "=r"(packed.scale[r]) : "l"(row + from.scale_at));
  }
}
__device__ inline void load_any(PackedRows& packed, const Source& from) {
  packed.is_fp4 = from.is_fp4;
  if (from.is_fp4) load_rows<true>(packed, from);
  else load_rows<false>(packed, from);
}

template <int kOffset>
__device__ void store_at(uint32_t address, uint4 value) {
  asm volatile("st.shared.v4.b32 [%0+%5], {%1,%2,%3,%4};" ::"r"(address), "r"(value.x), "r"(value.y), "r"(value.z),
               "r"(value.w), "n"(kOffset)
               : "memory");
}
// The lane's two pieces of a row (attention_entries.cuh), the first at `first`, both kRow rows on.
template <bool kIsFp4, int kRow>
__device__ void store_row(const PackedRows& packed, uint32_t first, uint32_t second, bool swaps) {
  constexpr int kOffset = kRow * kPanelRowBytes;
  const uint32_t(&codes)[4] = packed.codes[kRow];
  const uint32_t factor = unpack_factor<kIsFp4>(packed.scale[kRow]);
  if constexpr (kIsFp4) {
    store_at<kOffset>(first, unpack_nibbles(swaps ? codes[1] : codes[0], factor));
    store_at<kOffset>(second, unpack_nibbles(swaps ? codes[0] : codes[1], factor));
  } else {
    store_at<kOffset>(first, unpack_e4m3(swaps ? codes[2] : codes[0], swaps ? codes[3] : codes[1], factor));
    store_at<kOffset>(second, unpack_e4m3(swaps ? codes[0] : codes[2], swaps ? codes[1] : codes[3], factor));
  }
}
template <bool kIsFp4, int... kRow>
__device__ void store_rows(const PackedRows& packed, uint32_t at, bool swaps, std::integer_sequence<int, kRow...>) {
  (store_row<kIsFp4, kRow>(packed, at ^ kRow << 4, at ^ kRow << 4 ^ 16, swaps), ...);
}

__device__ inline void fill_half(Shared& s, PackedRows& packed, int slot, int half, uint32_t parity, const Source& next,
                                 int warp, int lane) {
  const uint32_t at =
      shared_address(s.entries[slot]) + ((half * (kTileEntries / kHalves) + kRowsEach * warp) * kPanelRowBytes |
                                         (panel_place(lane) ^ static_cast<uint32_t>(kRowsEach * warp % 8 << 4)));
  constexpr std::make_integer_sequence<int, kRowsEach> kRows;
  wait_for(s.empty[slot][half], parity);
  if (packed.is_fp4) store_rows<true>(packed, at, lane / 4 & 1, kRows);
  else store_rows<false>(packed, at, lane / 4 & 1, kRows);
  load_any(packed, next);
}

// Tile after tile of token after token; the rows of the next token are listed between the tiles of this one.
__device__ inline void fill_tiles(const SparseAttentionParams& p, Shared& s, int num_items, int thread) {
  const int warp = __shfl_sync(0xFFFFFFFFu, thread / 32, 0), lane = thread % 32;
  const bool has_fp4 = p.selected.data && p.global_format == RowFormat::kFp4Group16;
  const Fp4Tiles fp4{p.window / kTileEntries,
                     has_fp4 ? (p.window + static_cast<int>(p.selected.size[1]) + kTileEntries - 1) / kTileEntries : 0};
  Lister lister{p, s, thread};
  Tiles tiles{};
  PackedRows packed{};
  int item = static_cast<int>(blockIdx.x), stage = 0;  // to be listed
  int num_listed = 0, num_filled = 0, tile = -1, buffer = 0;
  bool has_queries = false;
  Item listed = item_of(p, item);
  for (;;) {
    const bool is_over = tiles.left == 0, ends_pair = tiles.left <= 1;
    for (int stages = is_over ? Lister::kStages : 1; stages > 0 && stage < Lister::kStages; --stages)
      lister.advance(stage++, listed, num_listed & 1);
    const int tile_buffer = buffer;
    if (is_over) buffer = num_listed & 1, tiles.list(p, s, buffer, lane);
    const int next = tiles.take();
    if (num_listed == 0) {
      load_any(packed, source_of(fp4, s, buffer, next, 0, warp, lane));
    } else {
      const int slot = num_filled & 1;
#pragma unroll 1
      for (int half = 0; half < kHalves; ++half) {
        const Source from = half == 0 ? source_of(fp4, s, tile_buffer, tile, 1, warp, lane)
                                      : source_of(fp4, s, buffer, next, 0, warp, lane);
        fill_half(s, packed, slot, half, (num_filled >> 1 & 1) ^ 1, from, warp, lane);
        if (half == 0 && thread < 2) {
          s.note[slot].present[thread] = tile < 0 ? 0 : s.present[tile_buffer][2 * tile + thread];
          s.note[slot].is_last = ends_pair;
        }
        show_all(s.full[slot][half]);
      }
      ++num_filled;
      if (has_queries) permute_queries(s, thread);
      has_queries = false;
    }
    tile = next;
    if (!is_over) continue;
    if (item >= num_items) break;
    wait_for(s.q_empty, (num_listed & 1) ^ 1);
    fetch_queries(p, listed, s, thread);
    has_queries = true;
    stage = 0;
    item += static_cast<int>(gridDim.x), ++num_listed;
    listed = item_of(p, min(item, num_items - 1));  // behind the last: listed for nothing
  }
}

}  // namespace attention
}  // namespace deepinfer
