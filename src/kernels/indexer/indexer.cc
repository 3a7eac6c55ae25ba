// SPDX-License-Identifier: MIT
#include "kernels/indexer/indexer.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/quantize/quantize.h"
#include "kernels/view_check.h"

namespace deepinfer {

void index_scores_ref(const ExecutionContext& context, const IndexScoresParams& params);
void index_scores_avx2(const ExecutionContext& context, const IndexScoresParams& params);
void index_scores_avx512(const ExecutionContext& context, const IndexScoresParams& params);
void index_scores_vnni(const ExecutionContext& context, const IndexScoresParams& params);
extern const Launch<IndexScoresParams> kIndexScoresCuda, kIndexScoresTensorCuda;

static Status check_entries(const IndexScoresParams& p) {
  if (p.candidates.data) {
    TRY(check_rows("candidates", p.candidates));
    if (p.candidate_block_size < 1)
      return invalid_argument(fmt::format("candidate_block_size is {}, expected at least 1", p.candidate_block_size));
    return check_shape("scores", p.scores, {p.q.size[0], p.candidates.size[1] * p.candidate_block_size});
  }
  return check_size("scores: tokens", p.scores.size[0], p.q.size[0]);
}

Status check_values(const IndexScoresParams& p) {
  for (int64_t t = 0; t < p.num_visible.size[0] && !p.candidates.data; ++t)
    if (p.num_visible(t) > p.scores.size[1])
      return invalid_argument(fmt::format("scores: entries is {}, expected at least num_visible({}) = {}",
                                          p.scores.size[1], t, p.num_visible(t)));
  return {};
}

Status check(const IndexScoresParams& p) {
  const int64_t tokens = p.q.size[0];
  TRY(check_planes("q", p.q));
  TRY(check_rows("weight", p.weight));
  TRY(check_rows("scores", p.scores));
  if (p.q.size[2] % 32 != 0)
    return invalid_argument(fmt::format("q: head_dim is {}, expected a multiple of 32", p.q.size[2]));
  TRY(check_shape("weight", p.weight, {tokens, p.q.size[1]}));
  TRY(check_shape("lane", p.lane, {tokens}));
  TRY(check_shape("num_visible", p.num_visible, {tokens}));
  if (p.keys.rows_per_block < 1)
    return invalid_argument(fmt::format("keys: rows_per_block is {}, expected at least 1", p.keys.rows_per_block));
  return check_entries(p);
}

Cost estimate(const IndexScoresParams& p) {
  const double heads = static_cast<double>(p.q.size[1]), head_dim = static_cast<double>(p.q.size[2]);
  double entries = 0;
  for (int64_t t = 0; t < p.q.size[0]; ++t)
    entries += static_cast<double>(p.candidates.data ? std::min<int64_t>(p.num_visible(t), p.scores.size[1])
                                                     : p.num_visible(t));
  return {.flops = entries * heads * (2 * head_dim + 3),
          .bytes_read = entries * static_cast<double>(row_bytes(RowFormat::kFp4Group32, p.q.size[2])) +
                        2 * static_cast<double>(p.q.num_elements()),
          .bytes_written = 4 * entries};
}

KernelRows<IndexScoresParams> index_scores_rows() {
  static const KernelRow<IndexScoresParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", index_scores_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", index_scores_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq", index_scores_avx512},
      {"cpu/vnni", Backend::kCpu, CpuLevel::kVnni, "avx512 vnni vbmi", index_scores_vnni},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kIndexScoresCuda},
      {"cuda/sm90_tensor", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kIndexScoresTensorCuda, false}};
  return kRows;
}

}  // namespace deepinfer
