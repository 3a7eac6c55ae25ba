// SPDX-License-Identifier: MIT
// Rotary embedding of the last rope_dim channels (model.md 3.3): adjacent pairs (2i, 2i+1) are (re, im), multiplied by
// e^{+j p f_i}; inverse = conjugate; fp32 inside, one rounding to bf16. Angle = fp32(p) * f_i rounded to fp32, then cos
// and sin of that fp32 number. Angles are made once per step and table and serve every layer of that table.
#pragma once

#include <span>

#include "kernels/op.h"
#include "tensor/bfloat16.h"

namespace deepinfer {

// The two tables of a model: ratio-0 layers plain, layers of ratio > 0 with YaRN (factor > 1).
struct RopeSpec {
  double theta = 10000;
  int rope_dim = 0;
  double factor = 1;  // 1 = plain
  double beta_fast = 32, beta_slow = 1;
  int64_t original_context = 0;
};
// f_i, i < rope_dim / 2, in fp32 arithmetic as the reference. Host only, once at load.
void rope_frequencies(const RopeSpec& spec, std::span<float> out);

// cos and sin of fp32(position) * frequency. A group j of ratio r has position j * r.
struct RopeAnglesParams {
  View<const int32_t, dim::tokens> position;
  View<const float, dim::rope_pairs> frequency;
  View<float, dim::tokens, dim::rope_pairs> cos, sin;
};
Status check(const RopeAnglesParams& params);
Cost estimate(const RopeAnglesParams& params);
KernelRows<RopeAnglesParams> rope_angles_rows();

// Rotates x in place; row t by cos(t), sin(t). Channels before the last 2 * rope_pairs stay as they are.
struct RopeParams {
  View<bf16, dim::tokens, dim::heads, dim::head_dim> x;
  View<const float, dim::tokens, dim::rope_pairs> cos, sin;
  bool inverse = false;
};
Status check(const RopeParams& params);
Cost estimate(const RopeParams& params);
KernelRows<RopeParams> rope_rows();

}  // namespace deepinfer
