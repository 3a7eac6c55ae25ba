// SPDX-License-Identifier: MIT
// Routed and shared experts (model.md 3.11) over assignments: rows of x, each for one expert. One rank calls plan,
// experts (routed), experts (shared), combine; under expert parallelism the rows travel between plan and experts and
// back before combine, and nothing else changes, because combine always adds in ascending expert id (decision 1).
#pragma once

#include <span>

#include "kernels/linear/linear.h"
#include "kernels/op.h"

namespace deepinfer {

// Sorts the choices of a batch by expert, tokens ascending inside one.
struct ExpertPlanParams {
  View<const int32_t, dim::tokens, dim::choices> expert;  // distinct within a token
  View<const float, dim::tokens, dim::choices> weight;
  View<int32_t, dim::experts> begin;      // [experts + 1]: assignments of expert e are [begin(e), begin(e+1))
  View<int32_t, dim::assignments> token;  // [tokens * choices]: row of x
  View<float, dim::assignments> assignment_weight;
  View<int32_t, dim::tokens, dim::choices> assignment;  // a token's assignments in ascending expert id
};
Status check(const ExpertPlanParams& params);
Status check_values(const ExpertPlanParams& params);
Cost estimate(const ExpertPlanParams& params);
KernelRows<ExpertPlanParams> expert_plan_rows();

struct ExpertMatrices {
  WeightMatrix w1, w3;  // [inner, hidden]: gate, up
  WeightMatrix w2;      // [hidden, inner]
};

// y = w2 bf16( clamp, silu(w1 x) * (w3 x), times the weight ): every linear with activation rounding and bf16 output;
// up is clamped to +-limit, gate to <= limit (limit 0: no clamp); the weight is applied in fp32 before w2.
struct ExpertsParams {
  View<const bf16, dim::tokens, dim::hidden> x;
  std::span<const ExpertMatrices> experts;      // only those with assignments are read
  View<const int32_t, dim::experts> begin;      // [experts + 1]
  View<const int32_t, dim::assignments> token;  // data may be null: assignment a is row a of x
  View<const float, dim::assignments> weight;   // data may be null: no weights (shared expert)
  float swiglu_limit = 0;
  View<bf16, dim::assignments, dim::hidden> out;
};
Status check(const ExpertsParams& params);
Status check_values(const ExpertsParams& params);
Cost estimate(const ExpertsParams& params);
KernelRows<ExpertsParams> experts_rows();

// out(t) = bf16( sum of y over the token's assignments, ascending expert id, fp32, then + shared(t) ).
struct ExpertCombineParams {
  View<const bf16, dim::assignments, dim::hidden> y;
  View<const int32_t, dim::tokens, dim::choices> assignment;
  View<const bf16, dim::tokens, dim::hidden> shared;  // data may be null
  View<bf16, dim::tokens, dim::hidden> out;
};
Status check(const ExpertCombineParams& params);
Cost estimate(const ExpertCombineParams& params);
KernelRows<ExpertCombineParams> expert_combine_rows();

}  // namespace deepinfer
