// SPDX-License-Identifier: MIT
// The experts of a layer as kernels see them. The table travels as a kernel parameter (32,764 bytes at most), so that
// nothing has to be copied before a launch.
#pragma once

#include "kernels/experts/experts.h"
#include "kernels/lanes/exponential.h"
#include "kernels/linear/cuda/activations.cuh"

namespace deepinfer {

inline constexpr size_t kExpertsMax = 512;

struct ExpertPointers {
  const uint8_t *w1, *w1_scales, *w3, *w3_scales, *w2, *w2_scales;
};

template <size_t kMax>
struct ExpertTable {
  ExpertPointers experts[kMax];
  View<const int32_t, dim::experts> begin;
  View<const int32_t, dim::assignments> token;
  View<const float, dim::assignments> weight;
  int32_t hidden, inner;
  float swiglu_limit;
  View<bf16, dim::assignments, dim::hidden> out;

  __device__ DeviceMatrix w1(int e) const { return {experts[e].w1, experts[e].w1_scales, inner, hidden}; }
  __device__ DeviceMatrix w3(int e) const { return {experts[e].w3, experts[e].w3_scales, inner, hidden}; }
  __device__ DeviceMatrix w2(int e) const { return {experts[e].w2, experts[e].w2_scales, hidden, inner}; }
};

// weight is null for the shared expert.
__device__ inline bf16 swiglu(bf16 gate_in, bf16 up_in, float limit, const float* weight) {
  float gate = to_float(gate_in), up = to_float(up_in);
  if (limit > 0) {
    gate = fminf(gate, limit);
    up = fminf(fmaxf(up, -limit), limit);
  }
  float hidden = silu_in_lanes(gate) * up;
  if (weight) hidden *= *weight;
  return to_bf16(hidden);
}

__device__ inline float approximate_inverse(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// The same, before the last rounding, without a slow path for the division, which would be a call: right to the last bit but for the rarest values,
// and 1e-37 instead of zero where the exponential overflows.
__device__ inline float swiglu_inline(float gate, float up, float limit, const float* weight) {
  if (limit > 0) {
    gate = fminf(gate, limit);
    up = fminf(fmaxf(up, -limit), limit);
  }
  const float divisor = fminf(1.f + exp_in_lanes(-gate), 1e37f), inverse = approximate_inverse(divisor);
  const float quotient = gate * inverse;
  const float hidden = __fmaf_rn(__fmaf_rn(-quotient, divisor, gate), inverse, quotient) * up;
  return weight ? hidden * *weight : hidden;
}

// Fills the table; gives whether the experts' weights are FP4 (else FP8). All of a layer are of one kind.
template <size_t kMax>
bool fill_expert_table(const ExpertsParams& p, ExpertTable<kMax>& table) {
  CHECK(p.experts.size() <= kMax);
  const auto device = [](const WeightMatrix& w) {
    return std::visit([](const auto& matrix) { return device_matrix(matrix); }, w);
  };
  size_t kind = std::variant_npos;
  for (size_t e = 0; e < p.experts.size(); ++e) {
    const ExpertMatrices& m = p.experts[e];
    const DeviceMatrix w1 = device(m.w1), w3 = device(m.w3), w2 = device(m.w2);
    table.experts[e] = {w1.codes, w1.scales, w3.codes, w3.scales, w2.codes, w2.scales};
    if (!w1.codes) continue;  // an expert of another rank
    CHECK(kind == std::variant_npos || kind == m.w1.index());
    CHECK(m.w1.index() == m.w2.index() && m.w1.index() == m.w3.index());
    kind = m.w1.index();
    table.inner = w1.out;
  }
  CHECK(kind != WeightMatrix(Bf16Matrix{}).index());  // no checkpoint has experts of bf16
  table.hidden = static_cast<int32_t>(p.x.size[1]);
  table.begin = p.begin, table.token = p.token, table.weight = p.weight;
  table.swiglu_limit = p.swiglu_limit, table.out = p.out;
  return kind == WeightMatrix(Fp4Matrix{}).index();
}

}  // namespace deepinfer
