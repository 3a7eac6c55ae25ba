// SPDX-License-Identifier: MIT
#include "kernels/top_k/top_k.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels/view_check.h"

namespace deepinfer {

void top_k_ref(const ExecutionContext& context, const TopKParams& params);
void top_k_avx2(const ExecutionContext& context, const TopKParams& params);
void top_k_avx512(const ExecutionContext& context, const TopKParams& params);
void candidate_blocks_ref(const ExecutionContext& context, const CandidateBlocksParams& params);
void candidate_blocks_avx2(const ExecutionContext& context, const CandidateBlocksParams& params);
void candidate_blocks_avx512(const ExecutionContext& context, const CandidateBlocksParams& params);
extern const Launch<TopKParams> kTopKCuda;
extern const Launch<CandidateBlocksParams> kCandidateBlocksCuda;

Status check(const TopKParams& p) {
  const int64_t tokens = p.out.size[0];
  TRY(check_rows("scores", p.scores));
  TRY(check_rows("out", p.out));
  TRY(check_shape("num_visible", p.num_visible, {tokens}));
  if (!p.candidates.data) return {};
  TRY(check_rows("candidates", p.candidates));
  if (p.candidate_block_size < 1)
    return invalid_argument(fmt::format("candidate_block_size is {}, expected at least 1", p.candidate_block_size));
  if (p.scores.data) TRY(check_shape("scores", p.scores, {tokens, p.candidates.size[1] * p.candidate_block_size}));
  return check_size("candidates: tokens", p.candidates.size[0], tokens);
}

Status check_values(const TopKParams& p) {
  if (p.candidates.data) {
    const int64_t listed = p.candidates.size[1] * p.candidate_block_size;
    for (int64_t t = 0; t < p.out.size[0] && !p.scores.data; ++t)
      if (std::min<int64_t>(listed, p.num_visible(t)) > p.out.size[1])
        return invalid_argument(fmt::format("scores: has no data, but token {} sees {} entries", t, p.num_visible(t)));
    return {};
  }
  for (int64_t t = 0; t < p.out.size[0]; ++t)
    if (p.num_visible(t) > p.out.size[1] && (!p.scores.data || p.num_visible(t) > p.scores.size[1]))
      return invalid_argument(fmt::format("scores: entries is {}, expected at least num_visible({}) = {}",
                                          p.scores.size[1], t, p.num_visible(t)));
  return {};
}

Status check(const CandidateBlocksParams& p) {
  TRY(check_rows("scores", p.scores));
  TRY(check_rows("out", p.out));
  TRY(check_shape("num_visible", p.num_visible, {p.out.size[0]}));
  if (p.block_size < 1) return invalid_argument(fmt::format("block_size is {}, expected at least 1", p.block_size));
  return {};
}

Status check_values(const CandidateBlocksParams& p) {
  for (int64_t t = 0; t < p.out.size[0]; ++t)
    if (p.num_visible(t) > p.out.size[1] * p.block_size && (!p.scores.data || p.num_visible(t) > p.scores.size[1]))
      return invalid_argument(fmt::format("scores: entries is {}, expected at least num_visible({}) = {}",
                                          p.scores.size[1], t, p.num_visible(t)));
  return {};
}

template <typename V>
static double num_scores(const V& num_visible) {
  double n = 0;
  for (int64_t t = 0; t < num_visible.size[0]; ++t) n += num_visible(t);
  return n;
}

Cost estimate(const TopKParams& p) {
  const double n = p.candidates.data ? static_cast<double>(p.candidates.num_elements() * p.candidate_block_size)
                                     : num_scores(p.num_visible);
  return {.flops = n, .bytes_read = 4 * n, .bytes_written = 4 * static_cast<double>(p.out.num_elements())};
}
Cost estimate(const CandidateBlocksParams& p) {
  const double n = num_scores(p.num_visible);
  return {.flops = n, .bytes_read = 4 * n, .bytes_written = 4 * static_cast<double>(p.out.num_elements())};
}

KernelRows<TopKParams> top_k_rows() {
  static const KernelRow<TopKParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", top_k_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", top_k_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq", top_k_avx512},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kTopKCuda}};
  return kRows;
}
KernelRows<CandidateBlocksParams> candidate_blocks_rows() {
  static const KernelRow<CandidateBlocksParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", candidate_blocks_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", candidate_blocks_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq", candidate_blocks_avx512},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kCandidateBlocksCuda}};
  return kRows;
}

}  // namespace deepinfer
