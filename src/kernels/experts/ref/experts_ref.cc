// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cstring>

#include "kernels/experts/experts.h"
#include "kernels/lanes/exponential.h"

namespace deepinfer {

void linear_ref(const ExecutionContext& context, const LinearParams& params);

namespace {

using Rows = View<bf16, dim::rows, dim::out>;

Rows linear(const ExecutionContext& context, const View<const bf16, dim::rows, dim::in>& x, const WeightMatrix& weight,
            bf16* out) {
  const Rows y(out, {x.size[0], num_outputs(weight)});
  linear_ref(context, {.x = x, .weight = weight, .round_activation = true, .out = y});
  return y;
}

// weight < 0 cannot occur; null weights mean 1 without a multiplication.
bf16 swiglu(bf16 gate_in, bf16 up_in, float limit, const float* weight) {
  float gate = to_float(gate_in), up = to_float(up_in);
  if (limit > 0) {
    gate = std::min(gate, limit);
    up = std::clamp(up, -limit, limit);
  }
  float hidden = silu_in_lanes(gate) * up;
  if (weight) hidden *= *weight;
  return to_bf16(hidden);
}

void run_expert(const ExecutionContext& context, const ExpertsParams& p, const ExpertMatrices& m, int64_t begin,
                int64_t end) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t rows = end - begin, hidden = p.x.size[1], inner = num_outputs(m.w1);
  bf16* x = context.scratch->take<bf16>(rows * hidden);
  for (int64_t a = begin; a < end; ++a) {
    const bf16* row = p.x.row(p.token.data ? p.token(a) : a);
    std::copy(row, row + hidden, x + (a - begin) * hidden);
  }
  const View<const bf16, dim::rows, dim::in> input(x, {rows, hidden});
  const Rows gate = linear(context, input, m.w1, context.scratch->take<bf16>(rows * inner));
  const Rows up = linear(context, input, m.w3, context.scratch->take<bf16>(rows * inner));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < inner; ++i)
      gate(r, i) = swiglu(gate(r, i), up(r, i), p.swiglu_limit, p.weight.data ? &p.weight(begin + r) : nullptr);
  const Rows y = linear(context, {gate.data, {rows, inner}}, m.w2, context.scratch->take<bf16>(rows * hidden));
  for (int64_t r = 0; r < rows; ++r) std::copy(y.row(r), y.row(r) + hidden, p.out.row(begin + r));
}

}  // namespace

void experts_ref(const ExecutionContext& context, const ExpertsParams& p) {
  for (size_t e = 0; e < p.experts.size(); ++e)
    if (p.begin(e) < p.begin(e + 1)) run_expert(context, p, p.experts[e], p.begin(e), p.begin(e + 1));
}

void expert_plan_ref(const ExecutionContext&, const ExpertPlanParams& p) {
  const int64_t num_experts = p.begin.size[0] - 1, tokens = p.expert.size[0], choices = p.expert.size[1];
  for (int64_t e = 0; e <= num_experts; ++e) p.begin(e) = 0;
  for (int64_t t = 0; t < tokens; ++t)
    for (int64_t c = 0; c < choices; ++c) ++p.begin(p.expert(t, c) + 1);
  for (int64_t e = 0; e < num_experts; ++e) p.begin(e + 1) += p.begin(e);
  // begin(e) moves to the end of expert e while its assignments are placed, and is moved back after.
  for (int64_t t = 0; t < tokens; ++t) {
    for (int64_t c = 0; c < choices; ++c) {
      const int32_t a = p.begin(p.expert(t, c))++;
      p.token(a) = static_cast<int32_t>(t);
      p.assignment_weight(a) = p.weight(t, c);
      p.assignment(t, c) = a;
    }
    std::sort(p.assignment.row(t), p.assignment.row(t) + choices);  // assignments ascend with the expert id
  }
  for (int64_t e = num_experts; e > 0; --e) p.begin(e) = p.begin(e - 1);
  p.begin(0) = 0;
}

void expert_combine_ref(const ExecutionContext&, const ExpertCombineParams& p) {
  for (int64_t t = 0; t < p.out.size[0]; ++t) {
    for (int64_t d = 0; d < p.out.size[1]; ++d) {
      float sum = 0;
      for (int64_t c = 0; c < p.assignment.size[1]; ++c) sum += to_float(p.y(p.assignment(t, c), d));
      if (p.shared.data) sum += to_float(p.shared(t, d));
      p.out(t, d) = to_bf16(sum);
    }
  }
}

}  // namespace deepinfer
