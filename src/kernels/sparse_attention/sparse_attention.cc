// SPDX-License-Identifier: MIT
#include "kernels/sparse_attention/sparse_attention.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/quantize/quantize.h"
#include "kernels/view_check.h"

namespace deepinfer {

void sparse_attention_ref(const ExecutionContext& context, const SparseAttentionParams& params);
void sparse_attention_avx2(const ExecutionContext& context, const SparseAttentionParams& params);
void sparse_attention_avx512(const ExecutionContext& context, const SparseAttentionParams& params);
void sparse_attention_bf16(const ExecutionContext& context, const SparseAttentionParams& params);
extern const Launch<SparseAttentionParams> kSparseAttentionCuda, kSparseAttentionTensorCuda;

static Status check_block_begins(const SparseAttentionParams& p) {
  for (int64_t t = 0; p.block_rows > 0 && t < p.q.size[0]; ++t)
    if (p.block_begin(t) < 0 || p.block_begin(t) + p.block_rows > p.fresh.size[0])
      return invalid_argument(fmt::format("block_begin({}) is {}, expected {} rows of the {} fresh rows", t,
                                          p.block_begin(t), p.block_rows, p.fresh.size[0]));
  return {};
}

static Status check_window(const SparseAttentionParams& p) {
  for (int64_t t = 0; t < p.q.size[0]; ++t) {
    const int64_t fresh = std::min<int64_t>(p.num_fresh(t), p.window), end = p.window_end(t);
    if (fresh < 0 || t + 1 - fresh < 0 || (fresh > 0 && t >= p.fresh.size[0]))
      return invalid_argument(
          fmt::format("num_fresh({}) is {}, expected at most the {} rows up to it", t, p.num_fresh(t), t + 1));
    const int64_t begin = std::max<int64_t>({0, end - p.window, p.window_begin.data ? p.window_begin(t) : 0});
    if (begin < end - fresh && (!p.ring.base || p.ring.capacity < end - fresh - begin))
      return invalid_argument(
          fmt::format("ring: capacity is {}, expected at least the {} positions that token {} reads",
                      p.ring.base ? p.ring.capacity : 0, end - fresh - begin, t));
  }
  return {};
}

Status check(const SparseAttentionParams& p) {
  const int64_t tokens = p.q.size[0], head_dim = p.q.size[2];
  TRY(check_rows("q", p.q));
  TRY(check_rows("out", p.out));
  TRY(check_rows("fresh", p.fresh));
  if (head_dim % 32 != 0)
    return invalid_argument(fmt::format("q: head_dim is {}, expected a multiple of 32", head_dim));
  TRY(check_shape("out", p.out, p.q.size));
  TRY(check_size("sink: size", p.sink.size, p.q.size[1]));
  TRY(check_shape("lane", p.lane, {tokens}));
  TRY(check_shape("window_end", p.window_end, {tokens}));
  TRY(check_shape("num_fresh", p.num_fresh, {tokens}));
  if (p.window_begin.data) TRY(check_shape("window_begin", p.window_begin, {tokens}));
  if (p.fresh.data) TRY(check_size("fresh: kv_bytes", p.fresh.size[1], row_bytes(p.window_format, head_dim)));
  if (p.window_format == RowFormat::kFp4Group32 || p.global_format == RowFormat::kFp4Group32)
    return invalid_argument("window_format, global_format: fp4_group32 rows are index keys, not values");
  if (p.window < 0 || p.block_rows < 0)
    return invalid_argument(
        fmt::format("window {} and block_rows {}: expected no negative number", p.window, p.block_rows));
  if (p.selected.data) {
    TRY(check_rows("selected", p.selected));
    TRY(check_size("selected: tokens", p.selected.size[0], tokens));
    if (p.global.rows_per_block < 1)
      return invalid_argument(
          fmt::format("global: rows_per_block is {}, expected at least 1", p.global.rows_per_block));
  }
  if (p.block_rows > 0) TRY(check_shape("block_begin", p.block_begin, {tokens}));
  return {};
}

Status check_values(const SparseAttentionParams& p) {
  TRY(check_window(p));
  return check_block_begins(p);
}

Cost estimate(const SparseAttentionParams& p) {
  const double heads = static_cast<double>(p.q.size[1]), head_dim = static_cast<double>(p.q.size[2]);
  double window = 0, selected = 0;
  for (int64_t t = 0; t < p.q.size[0]; ++t) {
    const int64_t begin = p.window_begin.data ? p.window_begin(t) : 0;
    window += static_cast<double>(std::clamp<int64_t>(p.window_end(t) - begin, 0, p.window) + p.block_rows);
    if (p.selected.data)
      selected += static_cast<double>(std::count_if(p.selected.row(t), p.selected.row(t) + p.selected.size[1],
                                                    [](int32_t e) { return e != kNoEntry; }));
  }
  return {.flops = (window + selected) * heads * 4 * head_dim,
          .bytes_read = window * static_cast<double>(row_bytes(p.window_format, p.q.size[2])) +
                        selected * static_cast<double>(row_bytes(p.global_format, p.q.size[2])) +
                        2 * static_cast<double>(p.q.num_elements()),
          .bytes_written = 2 * static_cast<double>(p.out.num_elements())};
}

KernelRows<SparseAttentionParams> sparse_attention_rows() {
  static const KernelRow<SparseAttentionParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", sparse_attention_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", sparse_attention_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq", sparse_attention_avx512},
      {"cpu/bf16", Backend::kCpu, CpuLevel::kBf16, "avx512 vnni vbmi bf16", sparse_attention_bf16},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kSparseAttentionCuda},
      {"cuda/sm90_tensor", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kSparseAttentionTensorCuda, false}};
  return kRows;
}

}  // namespace deepinfer
