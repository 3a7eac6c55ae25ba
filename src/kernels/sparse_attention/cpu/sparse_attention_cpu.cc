// SPDX-License-Identifier: MIT
// The CPU rows of the attention core. An item is one token and up to 16 heads: the heads of an item share the unpacked
// entries.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/lanes/exponential.h"
#include "kernels/sparse_attention/cpu/sparse_attention_kernels.h"
#include "kernels/sparse_attention/entry_list.h"

namespace deepinfer {
namespace {

constexpr int64_t kItemHeads = 16;

struct Workspace {  // of one worker
  float *q, *acc;   // [kItemHeads, head_dim]
  float* entries;   // [kAttentionBlock, head_dim]
  float* scores;    // [kItemHeads, kAttentionBlock]
};

int64_t workspace_size(int64_t head_dim) {
  return (2 * kItemHeads + kAttentionBlock) * head_dim + kItemHeads * kAttentionBlock;
}

Workspace carve(float* memory, int64_t head_dim) {
  return {memory, memory + kItemHeads * head_dim, memory + 2 * kItemHeads * head_dim,
          memory + (2 * kItemHeads + kAttentionBlock) * head_dim};
}

void unpack(const AttentionKernels& kernels, const EntryRow& entry, int64_t head_dim, float* out) {
  switch (entry.format) {
    case RowFormat::kFp8Block32: return kernels.unpack_fp8(entry.row, head_dim, out);
    case RowFormat::kFp4Group16: return kernels.unpack_fp4(entry.row, head_dim, out);
    case RowFormat::kBf16: return kernels.unpack_bf16(entry.row, head_dim, out);
    case RowFormat::kFp4Group32: CHECK(false);  // no cache of values has this format (check refuses it)
  }
}

// Unpacks entries [begin, begin + count); a missing one becomes zeros and its bit stays clear.
uint64_t load_block(const SparseAttentionParams& p, const AttentionKernels& kernels, int64_t token, int64_t begin,
                    int64_t count, float* entries) {
  const int64_t head_dim = p.q.size[2];
  uint64_t present = 0;
  for (int64_t e = 0; e < count; ++e) {
    const EntryRow entry = entry_row(p, token, begin + e);
    if (entry.row) {
      unpack(kernels, entry, head_dim, entries + e * head_dim);
      present |= uint64_t{1} << e;
    } else {
      std::fill_n(entries + e * head_dim, head_dim, 0.f);
    }
  }
  return present;
}

void hide_missing(uint64_t present, int64_t heads, float* scores) {
  for (int e = 0; e < kAttentionBlock && present != ~uint64_t{0}; ++e) {
    if (present >> e & 1) continue;
    for (int64_t h = 0; h < heads; ++h) scores[h * kAttentionBlock + e] = -std::numeric_limits<float>::infinity();
  }
}

void attend(const SparseAttentionParams& p, const AttentionKernels& kernels, int64_t token, int64_t first_head,
            int64_t heads, const Workspace& work) {
  const int64_t head_dim = p.q.size[2], total = num_entries(p);
  float highest[kItemHeads], sum[kItemHeads], decay[kItemHeads];
  for (int64_t h = 0; h < heads; ++h) {
    highest[h] = -1e30f;
    sum[h] = 0;
    kernels.unpack_bf16(reinterpret_cast<const uint8_t*>(&p.q(token, first_head + h, 0)), head_dim,
                        work.q + h * head_dim);
  }
  std::fill_n(work.acc, heads * head_dim, 0.f);
  for (int64_t begin = 0; begin < total; begin += kAttentionBlock) {
    const int64_t count = std::min<int64_t>(kAttentionBlock, total - begin);
    const uint64_t present = load_block(p, kernels, token, begin, count, work.entries);
    if (present == 0) continue;  // leaves maximum, sum and values as they are
    kernels.dots(work.q, heads, head_dim, work.entries, count, work.scores);
    hide_missing(present, heads, work.scores);
    for (int64_t h = 0; h < heads; ++h)
      decay[h] = kernels.softmax(work.scores + h * kAttentionBlock, p.scale, &highest[h], &sum[h]);
    kernels.accumulate(work.scores, decay, work.entries, count, heads, head_dim, work.acc);
  }
  for (int64_t h = 0; h < heads; ++h) {
    const float denominator = sum[h] + exp_in_lanes(p.sink[first_head + h] - highest[h]);
    kernels.divide(work.acc + h * head_dim, denominator, head_dim,
                   reinterpret_cast<uint16_t*>(&p.out(token, first_head + h, 0)));
  }
}

void sparse_attention(const ExecutionContext& context, const SparseAttentionParams& p,
                      const AttentionKernels& kernels) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t tokens = p.q.size[0], heads = p.q.size[1], head_dim = p.q.size[2], groups = ceil_div(heads, kItemHeads);
  float* memory = context.scratch->take<float>(context.num_threads() * workspace_size(head_dim));
  const double work = 2 * static_cast<double>(p.q.num_elements()) * static_cast<double>(num_entries(p));
  for_each_item(context, tokens * groups, work, [&](int64_t item, int worker) {
    const int64_t first_head = item % groups * kItemHeads;
    attend(p, kernels, item / groups, first_head, std::min(kItemHeads, heads - first_head),
           carve(memory + worker * workspace_size(head_dim), head_dim));
  });
}

}  // namespace

void sparse_attention_avx2(const ExecutionContext& c, const SparseAttentionParams& p) {
  sparse_attention(c, p, sparse_attention_kernels_avx2());
}
void sparse_attention_avx512(const ExecutionContext& c, const SparseAttentionParams& p) {
  sparse_attention(c, p, sparse_attention_kernels_avx512());
}

}  // namespace deepinfer
