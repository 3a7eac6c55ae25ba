// SPDX-License-Identifier: MIT
#include "kernels/experts/experts.h"

#include <fmt/format.h>

#include "kernels/view_check.h"

namespace deepinfer {

void expert_plan_ref(const ExecutionContext& context, const ExpertPlanParams& params);
void experts_ref(const ExecutionContext& context, const ExpertsParams& params);
void experts_avx2(const ExecutionContext& context, const ExpertsParams& params);
void experts_avx512(const ExecutionContext& context, const ExpertsParams& params);
void experts_bf16(const ExecutionContext& context, const ExpertsParams& params);
void expert_combine_ref(const ExecutionContext& context, const ExpertCombineParams& params);
void expert_combine_avx2(const ExecutionContext& context, const ExpertCombineParams& params);
void expert_combine_avx512(const ExecutionContext& context, const ExpertCombineParams& params);
extern const Launch<ExpertPlanParams> kExpertPlanCuda;
extern const Launch<ExpertsParams> kExpertsCuda;
extern const Launch<ExpertsParams> kExpertsTensorCuda;
extern const Launch<ExpertCombineParams> kExpertCombineCuda;

Status check(const ExpertPlanParams& p) {
  const int64_t total = p.expert.num_elements();
  TRY(check_rows("expert", p.expert));
  TRY(check_rows("weight", p.weight));
  TRY(check_rows("assignment", p.assignment));
  TRY(check_shape("weight", p.weight, p.expert.size));
  TRY(check_shape("assignment", p.assignment, p.expert.size));
  TRY(check_shape("token", p.token, {total}));
  return check_shape("assignment_weight", p.assignment_weight, {total});
}

Status check_values(const ExpertPlanParams& p) {
  const int64_t experts = p.begin.size[0] - 1;
  for (int64_t t = 0; t < p.expert.size[0]; ++t)
    for (int64_t c = 0; c < p.expert.size[1]; ++c)
      if (p.expert(t, c) < 0 || p.expert(t, c) >= experts)
        return invalid_argument(fmt::format("expert({}, {}) is {}, expected 0..{}", t, c, p.expert(t, c), experts - 1));
  return {};
}

Status check(const ExpertsParams& p) {
  const int64_t hidden = p.x.size[1], num_experts = static_cast<int64_t>(p.experts.size());
  TRY(check_rows("x", p.x));
  TRY(check_rows("out", p.out));
  TRY(check_shape("begin", p.begin, {num_experts + 1}));
  TRY(check_size("out: hidden", p.out.size[1], hidden));
  if (p.token.data) TRY(check_size("token: assignments", p.token.size[0], p.out.size[0]));
  else TRY(check_size("x: tokens", p.x.size[0], p.out.size[0]));
  if (p.weight.data) TRY(check_size("weight: assignments", p.weight.size[0], p.out.size[0]));
  return {};
}

Status check_values(const ExpertsParams& p) {
  const int64_t hidden = p.x.size[1], num_experts = static_cast<int64_t>(p.experts.size());
  TRY(check_size("begin: last", p.begin(num_experts), p.out.size[0]));
  for (int64_t e = 0; e < num_experts; ++e) {
    if (p.begin(e) == p.begin(e + 1)) continue;
    const ExpertMatrices& m = p.experts[static_cast<size_t>(e)];
    TRY(check_size("w1: in", num_inputs(m.w1), hidden));
    TRY(check_size("w3: in", num_inputs(m.w3), hidden));
    TRY(check_size("w3: out", num_outputs(m.w3), num_outputs(m.w1)));
    TRY(check_size("w2: in", num_inputs(m.w2), num_outputs(m.w1)));
    TRY(check_size("w2: out", num_outputs(m.w2), hidden));
    if (hidden % kScaleBlock != 0 || num_inputs(m.w2) % kScaleBlock != 0)
      return invalid_argument(
          fmt::format("x: hidden is {} and w2: in is {}, expected multiples of 32", hidden, num_inputs(m.w2)));
    for (const WeightMatrix* w : {&m.w1, &m.w3, &m.w2})
      if (layout_of(*w) == WeightLayout::kPlanes && !can_have_planes(num_outputs(*w), num_inputs(*w)))
        return invalid_argument(
            fmt::format("weight: {} x {} in planes, expected multiples of 32", num_outputs(*w), num_inputs(*w)));
  }
  return {};
}

Status check(const ExpertCombineParams& p) {
  TRY(check_rows("y", p.y));
  TRY(check_rows("assignment", p.assignment));
  TRY(check_rows("shared", p.shared));
  TRY(check_rows("out", p.out));
  TRY(check_shape("out", p.out, {p.assignment.size[0], p.y.size[1]}));
  if (p.shared.data) TRY(check_shape("shared", p.shared, p.out.size));
  return {};
}

Cost estimate(const ExpertPlanParams& p) {
  const double n = static_cast<double>(p.expert.num_elements());
  return {.bytes_read = 8 * n, .bytes_written = 12 * n + 4 * static_cast<double>(p.begin.size[0])};
}

Cost estimate(const ExpertsParams& p) {
  Cost cost{.bytes_read = 2 * static_cast<double>(p.out.num_elements()),
            .bytes_written = 2 * static_cast<double>(p.out.num_elements())};
  for (size_t e = 0; e < p.experts.size(); ++e) {
    const double rows = p.begin(e + 1) - p.begin(e);
    if (rows == 0) continue;
    const ExpertMatrices& m = p.experts[e];
    cost.flops += 6 * rows * static_cast<double>(num_outputs(m.w1)) * static_cast<double>(p.x.size[1]);
    cost.bytes_read += weight_bytes(m.w1) + weight_bytes(m.w3) + weight_bytes(m.w2);
  }
  return cost;
}

Cost estimate(const ExpertCombineParams& p) {
  const double n = static_cast<double>(p.out.num_elements()),
               terms = static_cast<double>(p.assignment.size[1]) + (p.shared.data ? 1 : 0);
  return {.flops = n * terms, .bytes_read = 2 * n * terms, .bytes_written = 2 * n};
}

KernelRows<ExpertPlanParams> expert_plan_rows() {
  static const KernelRow<ExpertPlanParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", expert_plan_ref},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kExpertPlanCuda}};
  return kRows;
}
KernelRows<ExpertsParams> experts_rows() {
  static const KernelRow<ExpertsParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", experts_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", experts_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq", experts_avx512},
      {"cpu/bf16", Backend::kCpu, CpuLevel::kBf16, "avx512 vnni vbmi bf16", experts_bf16},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kExpertsCuda},
      {"cuda/sm90_tensor", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kExpertsTensorCuda, false}};
  return kRows;
}
KernelRows<ExpertCombineParams> expert_combine_rows() {
  static const KernelRow<ExpertCombineParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", expert_combine_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", expert_combine_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq", expert_combine_avx512},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kExpertCombineCuda}};
  return kRows;
}

}  // namespace deepinfer
