// SPDX-License-Identifier: MIT
// The CPU rows of the attention core. An item is one token and up to 16 heads: the heads of an item share the unpacked
// entries.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/range.h"
#include "kernels/lanes/exponential.h"
#include "kernels/sparse_attention/cpu/sparse_attention_kernels.h"
#include "kernels/sparse_attention/entry_list.h"

namespace deepinfer {
namespace {

constexpr int64_t kItemHeads = kHeadsMost;

struct Level {
  const AttentionKernels& lanes;
  const PairAttentionKernels* pairs;  // null: all over fp32 lanes
};

struct Workspace {                   // of one worker
  float *q, *acc;                    // [kItemHeads, head_dim]
  float* entries;                    // [kAttentionBlock, head_dim]
  float* scores;                     // [kItemHeads, kAttentionBlock]
  uint16_t *pair_q, *pair_entries;   // as q and entries
  uint32_t *values, *probabilities;  // [kAttentionBlock / 2, head_dim], [kItemHeads, kAttentionBlock / 2]
};

int64_t workspace_size(int64_t head_dim, bool pairs) {  // in floats
  const int64_t lanes = (2 * kItemHeads + kAttentionBlock) * head_dim + kItemHeads * kAttentionBlock;
  return pairs ? lanes + (kItemHeads / 2 + kAttentionBlock) * head_dim + kItemHeads * kAttentionBlock / 2 : lanes;
}

Workspace carve(float* memory, int64_t head_dim) {
  Workspace work{};
  work.q = memory;
  work.acc = work.q + kItemHeads * head_dim;
  work.entries = work.acc + kItemHeads * head_dim;
  work.scores = work.entries + kAttentionBlock * head_dim;
  work.pair_q = reinterpret_cast<uint16_t*>(work.scores + kItemHeads * kAttentionBlock);
  work.pair_entries = work.pair_q + kItemHeads * head_dim;
  work.values = reinterpret_cast<uint32_t*>(work.pair_entries + kAttentionBlock * head_dim);
  work.probabilities = work.values + kAttentionBlock / 2 * head_dim;
  return work;
}

void unpack(const AttentionKernels& kernels, const EntryRow& entry, int64_t head_dim, float* out) {
  switch (entry.format) {
    case RowFormat::kFp8Block32: return kernels.unpack_fp8(entry.row, head_dim, out);
    case RowFormat::kFp4Group16: return kernels.unpack_fp4(entry.row, head_dim, out);
    case RowFormat::kBf16: return kernels.unpack_bf16(entry.row, head_dim, out);
    case RowFormat::kFp4Group32: CHECK(false);  // no cache of values has this format (check refuses it)
  }
}

// Where the entries [begin, begin + count) of a token stand, as entry_row() says, without its divisions.
class BlockRows {
 public:
  BlockRows(const SparseAttentionParams& p, int64_t token, int64_t begin, int64_t count) : p_(p), token_(token) {
    const int64_t end = begin + count, num_selected = p.selected.data ? p.selected.size[1] : 0;
    add_window(begin, std::min<int64_t>(end, p.window));
    window_end_ = num_;
    add_selected(std::max(begin - p.window, int64_t{0}), std::min(end - p.window, num_selected));
    selected_end_ = num_;
    for (int64_t e = std::max(begin, p.window + num_selected); e < end; ++e)
      add(p.fresh.row(p.block_begin(token) + e - p.window - num_selected));
  }
  EntryRow operator[](int64_t e) const {
    return {rows_[e], e >= window_end_ && e < selected_end_ ? p_.global_format : p_.window_format};
  }
  uint64_t present() const { return present_; }

 private:
  void add(const uint8_t* row) {
    if (row) present_ |= uint64_t{1} << num_;
    rows_[num_++] = row;
  }

  void add_window(int64_t begin, int64_t end) {
    if (begin >= end) return;
    const int64_t first = p_.window_end(token_) - p_.window, num_fresh = p_.num_fresh(token_),
                  fresh_begin = p_.window_end(token_) - num_fresh,
                  least = std::max<int64_t>(0, p_.window_begin.data ? p_.window_begin(token_) : 0);
    int64_t position = first + begin;
    for (; position < std::min(least, first + end); ++position) add(nullptr);
    int64_t slot = position < first + end ? position % p_.ring.capacity : 0;
    const uint8_t* ring = p_.ring.base + p_.lane(token_) * p_.ring.lane_stride_bytes;
    for (; position < std::min(fresh_begin, first + end); ++position) {
      add(ring + slot * p_.ring.row_stride_bytes);
      slot = slot + 1 == p_.ring.capacity ? 0 : slot + 1;
    }
    for (; position < first + end; ++position) add(p_.fresh.row(token_ + 1 - (p_.window_end(token_) - position)));
  }

  void add_selected(int64_t begin, int64_t end) {
    const ConstPaged& global = p_.global;
    int32_t first = 0, last = 0;  // entries of the block of the cache that the one before stood in
    const uint8_t* block = nullptr;
    for (int64_t e = begin; e < end; ++e) {
      const int32_t group = p_.selected(token_, e);
      if (group == kNoEntry) {
        add(nullptr);
        continue;
      }
      if (group < first || group >= last) {
        first = group / global.rows_per_block * global.rows_per_block;
        last = first + global.rows_per_block;
        block = global.row(p_.lane(token_), first);
      }
      add(block + (group - first) * global.row_stride_bytes);
    }
  }

  const SparseAttentionParams& p_;
  int64_t token_, num_ = 0, window_end_ = 0, selected_end_ = 0;
  uint64_t present_ = 0;
  const uint8_t* rows_[kAttentionBlock];
};

// Unpacks entries [begin, begin + count); a missing one becomes zeros and its bit stays clear.
uint64_t load_block(const SparseAttentionParams& p, const AttentionKernels& kernels, int64_t token, int64_t begin,
                    int64_t count, float* entries) {
  const int64_t head_dim = p.q.size[2];
  const BlockRows rows(p, token, begin, count);
  const int64_t used = std::min(count, round_up<int64_t>(kAttentionBlock - std::countl_zero(rows.present()), 8));
  for (int64_t e = 0; e < used; ++e) {
    const EntryRow entry = rows[e];
    if (entry.row) unpack(kernels, entry, head_dim, entries + e * head_dim);
    else std::fill_n(entries + e * head_dim, head_dim, 0.f);
  }
  return rows.present();
}

// The same as pairs, filled up to a whole block with zeros. False: an entry is not plain.
bool load_pair_block(const SparseAttentionParams& p, const PairAttentionKernels& kernels, int64_t token, int64_t begin,
                     int64_t count, uint16_t* entries, uint64_t* present) {
  const int64_t head_dim = p.q.size[2];
  const BlockRows rows(p, token, begin, count);
  bool plain = true;
  *present = rows.present();
  for (int64_t e = 0; e < kAttentionBlock && *present != 0; ++e, entries += head_dim) {
    const EntryRow entry = e < count ? rows[e] : EntryRow{};
    if (!entry.row) std::fill_n(entries, head_dim, uint16_t{0});
    else if (entry.format == RowFormat::kFp8Block32) plain = kernels.unpack_fp8(entry.row, head_dim, entries) && plain;
    else if (entry.format == RowFormat::kFp4Group16) kernels.unpack_fp4(entry.row, head_dim, entries);
    else plain = false;
  }
  return plain;
}

void hide_missing(uint64_t present, int64_t heads, float* scores) {
  uint64_t missing = ~present;
  while (missing != 0) {  // run by run
    const int begin = std::countr_zero(missing), size = std::countr_one(missing >> begin);
    for (int64_t h = 0; h < heads; ++h)
      std::fill_n(scores + h * kAttentionBlock + begin, size, -std::numeric_limits<float>::infinity());
    missing &= size == 64 ? 0 : ~(((uint64_t{1} << size) - 1) << begin);
  }
}

// What one item has come to: up to kItemHeads heads of one token.
struct Running {
  float highest[kHeadsMost] = {}, sum[kHeadsMost] = {}, decay[kHeadsMost] = {};
  bool plain = false;  // pairs may go on
};

void run_softmax(const AttentionKernels& kernels, uint64_t present, float scale, int64_t heads, float* scores,
                 Running& state) {
  hide_missing(present, heads, scores);
  kernels.softmax(scores, heads, scale, state.highest, state.sum, state.decay);
}

void add_block_in_lanes(const SparseAttentionParams& p, const AttentionKernels& kernels, int64_t token, int64_t begin,
                        int64_t heads, const Workspace& work, Running& state) {
  const int64_t head_dim = p.q.size[2], count = std::min<int64_t>(kAttentionBlock, num_entries(p) - begin);
  const uint64_t present = load_block(p, kernels, token, begin, count, work.entries);
  if (present == 0) return;  // leaves maximum, sum and values as they are
  const int64_t used = std::min(count, round_up<int64_t>(kAttentionBlock - std::countl_zero(present), 8));
  kernels.dots(work.q, heads, head_dim, work.entries, used, work.scores);
  run_softmax(kernels, present, p.scale, heads, work.scores, state);
  kernels.accumulate(work.scores, state.decay, work.entries, used, heads, head_dim, work.acc);
  // What the missing entries behind the last would have added; it makes a negative zero positive.
  for (int64_t i = 0; i < heads * head_dim && used < count; ++i) work.acc[i] += 0.f;
}

// False: nothing has happened, the lanes must do this block.
bool add_block_in_pairs(const SparseAttentionParams& p, const Level& level, int64_t token, int64_t begin, int64_t heads,
                        const Workspace& work, Running& state) {
  const PairAttentionKernels& kernels = *level.pairs;
  const int64_t head_dim = p.q.size[2], count = std::min<int64_t>(kAttentionBlock, num_entries(p) - begin);
  uint64_t present = 0;
  if (!load_pair_block(p, kernels, token, begin, count, work.pair_entries, &present)) return false;
  if (present == 0) return true;
  kernels.dots(work.pair_q, heads, head_dim, work.pair_entries, work.scores);
  const Running before = state;
  run_softmax(level.lanes, present, p.scale, heads, work.scores, state);
  bool plain = true;
  for (int64_t h = 0; h < heads && plain;
       ++h)  // a decay to nothing leaves zeros of either sign, but for the first block
    plain = (state.decay[h] > 0 || before.highest[h] == -1e30f) &&
            kernels.pair_probabilities(work.scores + h * kAttentionBlock, state.decay[h],
                                       work.probabilities + h * (kAttentionBlock / 2));
  if (!plain) {
    state = before;
    return false;
  }
  kernels.pair_entries(work.pair_entries, head_dim, work.values);
  state.plain = kernels.accumulate(work.probabilities, state.decay, work.values, heads, head_dim, work.acc);
  return true;
}

void attend(const SparseAttentionParams& p, const Level& level, int64_t token, int64_t first_head, int64_t heads,
            const Workspace& work) {
  const int64_t head_dim = p.q.size[2], total = num_entries(p);
  Running state;
  state.plain = level.pairs != nullptr;
  for (int64_t h = 0; h < heads; ++h) {
    state.highest[h] = -1e30f;
    state.sum[h] = 0;
    const bf16* q = &p.q(token, first_head + h, 0);
    level.lanes.unpack_bf16(reinterpret_cast<const uint8_t*>(q), head_dim, work.q + h * head_dim);
    state.plain = state.plain &&
                  level.pairs->load_queries(reinterpret_cast<const uint16_t*>(q), head_dim, work.pair_q + h * head_dim);
  }
  std::fill_n(work.acc, heads * head_dim, 0.f);
  for (int64_t begin = 0; begin < total; begin += kAttentionBlock)
    if (!state.plain || !add_block_in_pairs(p, level, token, begin, heads, work, state))
      add_block_in_lanes(p, level.lanes, token, begin, heads, work, state);
  for (int64_t h = 0; h < heads; ++h) {
    const float denominator = state.sum[h] + exp_in_lanes(p.sink[first_head + h] - state.highest[h]);
    level.lanes.divide(work.acc + h * head_dim, denominator, head_dim,
                       reinterpret_cast<uint16_t*>(&p.out(token, first_head + h, 0)));
  }
}

void sparse_attention(const ExecutionContext& context, const SparseAttentionParams& p, const Level& level) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t tokens = p.q.size[0], heads = p.q.size[1], head_dim = p.q.size[2], groups = ceil_div(heads, kItemHeads);
  const int64_t size = workspace_size(head_dim, level.pairs != nullptr);
  float* memory = context.scratch->take<float>(context.num_threads() * size);
  const double work = 2 * static_cast<double>(p.q.num_elements()) * static_cast<double>(num_entries(p));
  for_each_item(context, tokens * groups, work, [&](int64_t item, int worker) {
    const int64_t first_head = item % groups * kItemHeads;
    attend(p, level, item / groups, first_head, std::min(kItemHeads, heads - first_head),
           carve(memory + worker * size, head_dim));
  });
}

}  // namespace

void sparse_attention_avx2(const ExecutionContext& c, const SparseAttentionParams& p) {
  sparse_attention(c, p, {sparse_attention_kernels_avx2(), nullptr});
}
void sparse_attention_avx512(const ExecutionContext& c, const SparseAttentionParams& p) {
  sparse_attention(c, p, {sparse_attention_kernels_avx512(), nullptr});
}
void sparse_attention_bf16(const ExecutionContext& c, const SparseAttentionParams& p) {
  sparse_attention(c, p, {sparse_attention_kernels_avx512(), &pair_attention_kernels_bf16()});
}

}  // namespace deepinfer
