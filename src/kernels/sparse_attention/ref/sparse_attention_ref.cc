// SPDX-License-Identifier: MIT
#include <algorithm>
#include <limits>

#include "kernels/lanes/exponential.h"
#include "kernels/lanes/lanes.h"
#include "kernels/sparse_attention/entry_list.h"

namespace deepinfer {

void unpack_rows_ref(const ExecutionContext& context, const UnpackRowsParams& params);

namespace {

void load_entry(const ExecutionContext& context, const EntryRow& entry, int64_t head_dim, float* out) {
  std::fill(out, out + head_dim, 0.f);
  if (!entry.row) return;
  const Scratch::Frame frame(*context.scratch);
  bf16* values = context.scratch->take<bf16>(head_dim);
  unpack_rows_ref(context, {.format = entry.format,
                            .packed = {entry.row, {1, row_bytes(entry.format, head_dim)}},
                            .out = {values, {1, head_dim}}});
  for (int64_t i = 0; i < head_dim; ++i) out[i] = to_float(values[i]);
}

struct Running {
  float highest = -1e30f, sum = 0;
  float* acc;  // [head_dim]
};

// One block of entries for one head. scores: -inf = missing.
void add_block(Running& state, const float* scores, const float* entries, int64_t size, int64_t head_dim) {
  float highest = state.highest;
  for (int64_t e = 0; e < size; ++e) highest = std::max(highest, scores[e]);
  const float decay = exp_in_lanes(state.highest - highest);
  LaneSum sum;
  for (int64_t d = 0; d < head_dim; ++d) state.acc[d] *= decay;
  for (int64_t e = 0; e < size; ++e) {
    const float probability = exp_in_lanes(scores[e] - highest), rounded = round_to_bf16(probability);
    sum.add(e, probability);
    for (int64_t d = 0; d < head_dim; ++d) state.acc[d] += rounded * entries[e * head_dim + d];
  }
  state.sum = state.sum * decay + sum.total();
  state.highest = highest;
}

}  // namespace

void sparse_attention_ref(const ExecutionContext& context, const SparseAttentionParams& p) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t head_dim = p.q.size[2], total = num_entries(p);
  float* entries = context.scratch->take<float>(std::max<int64_t>(total, 1) * head_dim);
  float* q = context.scratch->take<float>(head_dim);
  float* acc = context.scratch->take<float>(head_dim);
  float* scores = context.scratch->take<float>(kAttentionBlock);
  for (int64_t t = 0; t < p.q.size[0]; ++t) {
    for (int64_t e = 0; e < total; ++e) load_entry(context, entry_row(p, t, e), head_dim, entries + e * head_dim);
    for (int64_t h = 0; h < p.q.size[1]; ++h) {
      for (int64_t d = 0; d < head_dim; ++d) q[d] = to_float(p.q(t, h, d));
      std::fill(acc, acc + head_dim, 0.f);
      Running state{.acc = acc};
      for (int64_t begin = 0; begin < total; begin += kAttentionBlock) {
        const int64_t size = std::min<int64_t>(kAttentionBlock, total - begin);
        for (int64_t e = 0; e < size; ++e)
          scores[e] = entry_row(p, t, begin + e).row
                          ? p.scale * dot_in_lanes(q, entries + (begin + e) * head_dim, head_dim)
                          : -std::numeric_limits<float>::infinity();
        add_block(state, scores, entries + begin * head_dim, size, head_dim);
      }
      const float denominator = state.sum + exp_in_lanes(p.sink[h] - state.highest);
      for (int64_t d = 0; d < head_dim; ++d) p.out(t, h, d) = to_bf16(acc[d] / denominator);
    }
  }
}

}  // namespace deepinfer
