// SPDX-License-Identifier: MIT
// Attention on tensor cores (wgmma), 64 heads of one token at a time by one block, which walks over the tokens. A
// warpgroup unpacks the token's entries into shared memory, 64 at a time, once for keys and values; two multiply: each
// scores every second tile and has half of the output columns of both. The tiles, their order and the running maximum are
// those of the reference, so only the order inside sums differs, and a token's result depends on nothing but the token.
#include <algorithm>
#include <initializer_list>

#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/sparse_attention/cuda/attention_entries.cuh"

namespace deepinfer {

extern const Launch<SparseAttentionParams> kSparseAttentionCuda;

namespace {

constexpr int kHeads = 64, kEntriesMax = 768, kGroupThreads = 128, kProducers = 128, kThreads = 384;
constexpr int kHalves = 2, kRowsEach = kTileEntries / kHalves / (kProducers / 32);  // of a warp, in half a tile
constexpr int kProducerRegisters = 104, kConsumerRegisters = 200;  // in all those of the launch: 168 a thread
constexpr int kColumnsEach = kTileColumns / 2;
constexpr float kLog2E = 1.44269504f;
enum NamedBarrier { kListed = 1, kFirstWeighed, kSecondWeighed, kOwnWeights };  // and kOwnWeights + 1

struct Note {  // of a tile in shared memory
  uint32_t present[2];
  int is_last;  // of its token, it or the tile behind it
};

struct Shared {
  alignas(1024) uint8_t q[kTileBytes];
  alignas(1024) uint8_t entries[2][kTileBytes];
  alignas(1024) uint8_t weights[2][kPanelBytes];
  union {  // of entries, first what was found of them, then where they stand
    const uint8_t* rows[2][kEntriesMax];
    int2 found[2][kEntriesMax];
  };
  uint32_t present[2][kEntriesMax / 32];
  float highest[2][kHeads], sum[2][kHeads], decay[2][kHeads];
  Note note[2];
  uint64_t full[2][kHalves], empty[2][kHalves], q_full, q_empty;  // of halves of tiles
};

__device__ void sync_threads(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ void arrive_at(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
__device__ void show_to_products() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
__device__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Work item: 64 heads of a token.
struct Item {
  int64_t token, first_head;
};
__device__ int64_t num_head_blocks(const SparseAttentionParams& p) { return (p.q.size[1] + kHeads - 1) / kHeads; }
__device__ Item item_of(const SparseAttentionParams& p, int64_t i) {
  return {i / num_head_blocks(p), i % num_head_blocks(p) * kHeads};
}

// ---- the warpgroup that fills shared memory

__device__ void fetch_queries(const SparseAttentionParams& p, const Item& item, Shared& s, int thread) {
  const bf16* from = p.q.row(item.token) + item.first_head * p.q.stride[1];
#pragma unroll 2
  for (int i = thread; i < kHeads * kTileColumns / 8; i += kProducers) {
    const int head = i / (kTileColumns / 8), piece = i % (kTileColumns / 8);
    uint8_t* to = s.q + piece / 8 * kPanelBytes + panel_offset(head, piece % 8);
    const int64_t h = item.first_head + head;
    if (h < p.q.size[1]) copy_16(to, from + head * p.q.stride[1] + 8 * piece);
    else *reinterpret_cast<uint4*>(to) = {};
  }
}
// Of the pieces that the same thread fetched.
__device__ void permute_queries(Shared& s, int thread) {
  asm volatile("cp.async.wait_all;" ::: "memory");
#pragma unroll 2
  for (int i = thread; i < kHeads * kTileColumns / 8; i += kProducers) {
    const int head = i / (kTileColumns / 8), piece = i % (kTileColumns / 8);
    auto* at = reinterpret_cast<uint4*>(s.q + piece / 8 * kPanelBytes + panel_offset(head, piece % 8));
    *at = permute_eight(*at);
  }
  show_to_products();
  arrive(s.q_full);
}

__device__ uint4 zero_row[kTileColumns / 16 + 1];  // stands for missing rows

// What a token says about its entries, read once.
struct TokenEntries {
  int end, begin, num_fresh, num_selected;
  const uint8_t *fresh, *ring, *block;  // the token's own row; its lane's ring; the first row of its block
  const int32_t *selected, *block_table;
};
__device__ TokenEntries entries_of(const SparseAttentionParams& p, int64_t token) {
  const int lane = p.lane(token);
  TokenEntries t{};
  t.end = p.window_end(token), t.num_fresh = p.num_fresh(token);
  t.begin = p.window_begin.data ? max(p.window_begin(token), 0) : 0;
  t.fresh = p.fresh.data + token * p.fresh.stride[0];
  t.ring = p.ring.base + lane * p.ring.lane_stride_bytes;
  if (p.block_rows > 0) t.block = p.fresh.row(p.block_begin(token));
  if (p.selected.data) {
    t.num_selected = static_cast<int>(p.selected.size[1]);
    t.selected = p.selected.row(token);
    t.block_table = p.global.block_table.row(lane);
  }
  return t;
}

// Where entry e stands (entry_list.h), null = missing. `group` and `block` of selected ones.
__device__ const uint8_t* row_of(const SparseAttentionParams& p, const TokenEntries& t, int e, int group, int block) {
  if (e < p.window) {
    const int position = t.end - p.window + e, age = p.window - e;
    if (position < t.begin) return nullptr;
    const uint32_t slot = static_cast<uint32_t>(position) % static_cast<uint32_t>(max(p.ring.capacity, 1));
    return age <= t.num_fresh ? t.fresh + (1 - age) * p.fresh.stride[0] : t.ring + slot * p.ring.row_stride_bytes;
  }
  e -= p.window;
  if (e >= t.num_selected) return e - t.num_selected < p.block_rows ? t.block + (e - t.num_selected) * p.fresh.stride[0] : nullptr;
  if (group == kNoEntry) return nullptr;
  const uint32_t row = static_cast<uint32_t>(group) % static_cast<uint32_t>(p.global.rows_per_block);
  return p.global.base + block * p.global.block_stride_bytes + row * p.global.row_stride_bytes;
}

// Lists the rows of a token in three stages, one kind of load each, so that none is waited for.
struct Lister {
  static constexpr int kStages = 3, kEach = kEntriesMax / kProducers;
  int group[kEach];
  int num_stages;  // done

  __device__ void advance(const SparseAttentionParams& p, int64_t token, Shared& s, int buffer, int thread) {
    const TokenEntries t = entries_of(p, token);
    const int total = static_cast<int>(num_entries(p)), tiled = (total + kTileEntries - 1) / kTileEntries * kTileEntries;
    if (num_stages == 0) {
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        const int e = thread + k * kProducers - p.window;
        group[k] = e >= 0 && e < t.num_selected ? t.selected[e] : kNoEntry;
      }
    } else if (num_stages == 1) {
      sync_threads(kListed, kProducers);  // the list before has been read
#pragma unroll
      for (int k = 0; k < kEach; ++k) {
        const int block = t.num_selected > 0 ? t.block_table[max(group[k], 0) / p.global.rows_per_block] : 0;
        s.found[buffer][thread + k * kProducers] = make_int2(group[k], block);
      }
    } else {
#pragma unroll 1
      for (int e = thread; e < tiled; e += kProducers) {
        const int2 found = s.found[buffer][e];
        const uint8_t* row = row_of(p, t, e, found.x, found.y);
        s.rows[buffer][e] = row ? row : reinterpret_cast<const uint8_t*>(zero_row);
        const unsigned present = __ballot_sync(0xFFFFFFFFu, row != nullptr);
        if (thread % 32 == 0) s.present[buffer][e / 32] = present;
      }
      sync_threads(kListed, kProducers);
    }
    ++num_stages;
  }
};

// Takes the next tile off a set of tiles: -1 = none left.
__device__ int take_tile(uint32_t& tiles) {
  const int tile = __ffs(static_cast<int>(tiles)) - 1;
  tiles &= tiles - 1;
  return tile;
}

struct Tile {
  int index;  // -1: none, all missing
  int buffer;
  bool is_fp4;
};

// The tiles of a listed token that hold an entry, a pair at a time: what lacks is empty.
struct Tiles {
  uint32_t set;
  int buffer, left;

  __device__ void list(const SparseAttentionParams& p, const Shared& s, int from) {
    set = 0, buffer = from;
#pragma unroll 1
    for (int tile = 0; tile < (num_entries(p) + kTileEntries - 1) / kTileEntries; ++tile)
      if (s.present[buffer][2 * tile] | s.present[buffer][2 * tile + 1]) set |= 1u << tile;
    left = max(2, (__popc(set) + 1) / 2 * 2);
  }
  __device__ Tile take(const SparseAttentionParams& p) {
    const int index = take_tile(set), entry = index * kTileEntries - p.window;
    --left;
    return {index, buffer, index >= 0 && p.selected.data && entry >= 0 && entry < p.selected.size[1] &&
                               p.global_format == RowFormat::kFp4Group16};
  }
};

// Half a tile after half a tile, a warp's eight rows of the next fetched while it unpacks. The code is kept short: it has to
// stay in the instruction cache beside that of the products.
struct Filler {
  Shared& s;
  int warp, lane;
  uint32_t place;
  PackedPiece ahead[kRowsEach];
  bool has_queries;  // on their way

  // The pointers of this warp's rows of half a tile.
  __device__ const uint8_t* const* rows_of(const Tile& tile, int half) const {
    return s.rows[tile.buffer] + tile.index * kTileEntries + half * (kTileEntries / kHalves) + kRowsEach * warp;
  }
  __device__ void look_ahead(const Tile& tile, int half, int r) {
    const uint8_t* none = reinterpret_cast<const uint8_t*>(zero_row);
    load_piece(ahead[r], tile.index < 0 ? none : rows_of(tile, half)[r], tile.is_fp4, lane);
  }
  template <bool kIsFp4>
  __device__ void store_half(uint32_t rows, const Tile& next, int next_half) {
#pragma unroll
    for (int r = 0; r < kRowsEach; ++r) {
      store_piece<kIsFp4>(rows + r * kPanelRowBytes + (place ^ static_cast<uint32_t>(r << 4)), lane, ahead[r]);
      look_ahead(next, next_half, r);
    }
  }
  __device__ void fill_half(int slot, int half, uint32_t parity, const Tile& tile, const Tile& next) {
    const uint32_t rows =
        shared_address(s.entries[slot]) + (half * (kTileEntries / kHalves) + kRowsEach * warp) * kPanelRowBytes;
    wait_for(s.empty[slot][half], parity);
    if (tile.is_fp4) store_half<true>(rows, next, half ^ 1);
    else store_half<false>(rows, next, half ^ 1);
  }
};

__device__ void fill_tile(Filler& filler, int num_filled, const Tile& tile, const Tile& next, bool is_last, int thread) {
  const int slot = num_filled & 1;
  Shared& s = filler.s;
#pragma unroll 1
  for (int half = 0; half < kHalves; ++half) {
    filler.fill_half(slot, half, (num_filled >> 1 & 1) ^ 1, tile, half == 0 ? tile : next);
    if (half == 0 && thread < 2) {
      s.note[slot].present[thread] = tile.index < 0 ? 0 : s.present[tile.buffer][2 * tile.index + thread];
      s.note[slot].is_last = is_last;
    }
    show_to_products();
    arrive(s.full[slot][half]);
  }
}

// Tile after tile of token after token; the rows of the next token are listed between the tiles of this one.
__device__ void fill_tiles(const SparseAttentionParams& p, Shared& s, int64_t num_items, int thread) {
  const int warp = thread / 32;
  Filler filler{s, warp, thread % 32, panel_place(thread % 32) ^ static_cast<uint32_t>(kRowsEach * warp % 8 << 4), {}, false};
  Lister lister{};
  Tiles tiles{};
  Tile tile{};
  int64_t item = blockIdx.x;  // to be listed
  int num_listed = 0, num_filled = 0;
  for (;;) {
    const bool is_over = tiles.left == 0, ends_pair = tiles.left <= 1;
    const int64_t listed = item < num_items ? item : num_items - 1;
    for (int stages = is_over ? Lister::kStages : 1; stages > 0 && lister.num_stages < Lister::kStages; --stages)
      lister.advance(p, item_of(p, listed).token, s, num_listed & 1, thread);
    if (is_over) tiles.list(p, s, num_listed & 1);
    const Tile next = tiles.take(p);
    if (num_listed == 0) {
#pragma unroll
      for (int r = 0; r < kRowsEach; ++r) filler.look_ahead(next, 0, r);
    } else {
      fill_tile(filler, num_filled++, tile, next, ends_pair, thread);
      if (filler.has_queries) permute_queries(s, thread);
      filler.has_queries = false;
    }
    tile = next;
    if (!is_over) continue;
    if (item >= num_items) break;
    wait_for(s.q_empty, (num_listed & 1) ^ 1);
    fetch_queries(p, item_of(p, item), s, thread);
    filler.has_queries = true;
    lister.num_stages = 0;
    item += gridDim.x, ++num_listed;
  }
}

// ---- the warpgroups that multiply

struct Running {
  float highest, sum;  // the maximum in powers of two
};

// Scores of a tile (thread: rows g and g + 8 of its warp, columns 8 j + 2 c and the next) become weights in shared memory.
__device__ void weigh(float (&scores)[32], const Note& note, float scale, int warp, int lane, uint8_t* weights,
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
  __device__ void shrink(float (&out)[128]) {
    hold(out);
#pragma unroll
    for (int i = 0; i < 128; ++i) out[i] *= decay[i / 2 % 2];
  }
  __device__ void add(float (&out)[128], int tile) {
    const uint64_t weights = swizzled_descriptor(shared_address(s.weights[tile]), 0);
    const uint64_t entries =
        swizzled_descriptor(shared_address(s.entries[tile]) + group * (kTileBytes / 2), kPanelBytes);
    hold(out);
    fence_products();
#pragma unroll
    for (int k = 0; k < kTileEntries / 16; ++k) {
      wgmma_columns(out, weights + k * 2, entries + k * 16 * kPanelRowBytes / 16);
      if (k % 2 == 1) commit_products();  // half a tile
    }
  }
  __device__ void release(uint64_t& barrier) {
    if (lane == 0) arrive(barrier);
  }
};

// The products of both tiles, and their halves given back as they are done.
__device__ void add_tiles(Multiplier& m, float (&out)[128], const float (&first)[2], const float (&second)[2]) {
  Shared& s = m.s;
  m.decay[0] = first[0], m.decay[1] = first[1];
  m.shrink(out);
  m.add(out, 0);
  m.decay[0] = second[0], m.decay[1] = second[1];
  if (m.group == 0) {
    sync_threads(kSecondWeighed, 2 * kGroupThreads);
    m.take_over(1);
  }
  wait_for_products<1>();
  m.release(s.empty[0][0]);
  wait_for_products<0>();
  m.release(s.empty[0][1]);
  m.shrink(out);
  m.add(out, 1);
  wait_for_products<1>();
  m.release(s.empty[1][0]);
  wait_for_products<0>();
  m.release(s.empty[1][1]);
  m.hold(out);
}

// Two tiles: group 0 scores the first, group 1 the second, behind it in the running maximum.
__device__ bool add_pair(Multiplier& m, float (&out)[128], uint32_t parity, float scale) {
  Shared& s = m.s;
  float scores[32], first[2];
  for (int half = 0; half < kHalves; ++half) wait_for(s.full[m.group][half], parity);
  const Note note = s.note[m.group];
  m.score(scores);
  if (note.is_last) m.release(s.q_empty);
  if (m.group == 1) {
    sync_threads(kFirstWeighed, 2 * kGroupThreads);
    m.take_over(0);
    first[0] = m.decay[0], first[1] = m.decay[1];
  }
  weigh(scores, note, scale, m.warp, m.lane, s.weights[m.group], m.running, m.decay);
  m.publish(m.group);
  arrive_at(m.group == 0 ? kFirstWeighed : kSecondWeighed, 2 * kGroupThreads);
  sync_threads(kOwnWeights + m.group, kGroupThreads);
  if (m.group == 0) first[0] = m.decay[0], first[1] = m.decay[1];
  const float second[2] = {m.decay[0], m.decay[1]};
  add_tiles(m, out, first, second);
  return note.is_last;
}

// Words of four threads: thread c gets word c of each.
__device__ uint4 exchange_words(uint4 v, int c) {
  const bool odd = c & 1, high = c & 2;
  const uint32_t a = __shfl_xor_sync(0xFFFFFFFFu, odd ? v.x : v.y, 1), b = __shfl_xor_sync(0xFFFFFFFFu, odd ? v.z : v.w, 1);
  if (odd) v.x = a, v.z = b;
  else v.y = a, v.w = b;
  const uint32_t d = __shfl_xor_sync(0xFFFFFFFFu, high ? v.x : v.z, 2), e = __shfl_xor_sync(0xFFFFFFFFu, high ? v.y : v.w, 2);
  if (high) v.x = d, v.y = e;
  else v.z = d, v.w = e;
  return v;
}

__device__ uint32_t two_bf16(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ void write_out(const Multiplier& m, const Item& item, const float (&out)[128]) {
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
        words[j] = two_bf16(out[at] * factor, out[at + 1] * factor);
      }
      const uint4 eight = restore_eight(exchange_words({words[0], words[1], words[2], words[3]}, c));
      if (exists)
        *reinterpret_cast<uint4*>(&m.p.out(item.token, head, m.group * kColumnsEach + 8 * (4 * q + c))) = eight;
    }
  }
}

__device__ void multiply_tiles(const SparseAttentionParams& p, Shared& s, int64_t num_items, int group, int thread) {
  Multiplier m{p, s, group, thread / 32, thread % 32, {}, {}};
  const float scale = p.scale * kLog2E * kUnpackScale;
  uint32_t num_pairs = 0, num_done = 0;
  for (int64_t i = blockIdx.x; i < num_items; i += gridDim.x, ++num_done) {
    float out[128];
#pragma unroll
    for (int k = 0; k < 128; ++k) out[k] = 0;
    m.running[0] = m.running[1] = {-1e30f, 0.f};
    wait_for(s.q_full, num_done & 1);
    while (!add_pair(m, out, num_pairs++ & 1, scale)) {
    }
    write_out(m, item_of(p, i), out);
  }
}

__global__ void __launch_bounds__(kThreads, 1) attention_kernel(const __grid_constant__ SparseAttentionParams p,
                                                                int64_t num_items) {
#if DEEPINFER_HAS_WARPGROUPS
  extern __shared__ __align__(1024) uint8_t shared[];
  Shared& s = *reinterpret_cast<Shared*>(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2 * kHalves; ++i)
      init_barrier(s.full[i / 2][i % 2], kProducers), init_barrier(s.empty[i / 2][i % 2], 8);
    init_barrier(s.q_full, kProducers), init_barrier(s.q_empty, 8);
    publish_barriers();
  }
  __syncthreads();
  const int group = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / kGroupThreads, 0), thread = static_cast<int>(threadIdx.x) % kGroupThreads;
  if (group < 2) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kConsumerRegisters));
    multiply_tiles(p, s, num_items, group, thread);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
    fill_tiles(p, s, num_items, static_cast<int>(threadIdx.x) - 2 * kGroupThreads);
  }
#endif
}

bool is_aligned(const void* p, std::initializer_list<int64_t> strides, int64_t to) {
  bool aligned = reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(to) == 0;
  for (const int64_t stride : strides) aligned &= stride % to == 0;
  return aligned;
}

// What the tiles are made for: the released widths. Everything else is left to the exact kernel.
bool takes(const SparseAttentionParams& p) {
  const auto is_packed = [](RowFormat f) { return f == RowFormat::kFp8Block32 || f == RowFormat::kFp4Group16; };
  const int64_t selected = p.selected.data ? p.selected.size[1] : 0;  // a tile has one format
  const bool is_tiled = p.window % kTileEntries == 0 && (p.block_rows == 0 || selected % kTileEntries == 0);
  return is_tiled && p.q.size[2] == kTileColumns && p.q.size[1] >= kHeads / 2 && num_entries(p) <= kEntriesMax &&
         is_packed(p.window_format) && (!p.selected.data || is_packed(p.global_format)) &&
         is_aligned(p.q.data, {2 * p.q.stride[0], 2 * p.q.stride[1]}, 16) &&
         is_aligned(p.out.data, {2 * p.out.stride[0], 2 * p.out.stride[1]}, 16) &&
         is_aligned(p.fresh.data, {p.fresh.stride[0]}, 16) &&
         is_aligned(p.ring.base, {p.ring.lane_stride_bytes, p.ring.row_stride_bytes}, 16) &&
         is_aligned(p.global.base, {p.global.block_stride_bytes, p.global.row_stride_bytes}, 16);
}

void sparse_attention_tensor_cuda(const ExecutionContext& context, const SparseAttentionParams& p) {
  if (p.out.num_elements() == 0) return;
  if (!kHasWarpgroups || !takes(p)) return kSparseAttentionCuda(context, p);
  const int64_t num_items = p.q.size[0] * ((p.q.size[1] + kHeads - 1) / kHeads);
  allow_shared_memory(attention_kernel, sizeof(Shared));
  attention_kernel<<<static_cast<unsigned>(std::min<int64_t>(num_items, multiprocessor_count())), kThreads, sizeof(Shared),
                     stream_of(context)>>>(p, num_items);
  context.device->launched("sparse_attention");
}

}  // namespace

extern const Launch<SparseAttentionParams> kSparseAttentionTensorCuda = sparse_attention_tensor_cuda;

}  // namespace deepinfer
