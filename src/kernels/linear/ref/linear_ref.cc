// SPDX-License-Identifier: MIT
#include "kernels/lanes/lanes.h"
#include "kernels/linear/linear.h"
#include "kernels/quantize/rounding.h"

namespace deepinfer {
namespace {

void load_row(const Bf16Matrix& m, int64_t o, float* out) {
  for (int64_t k = 0; k < m.in; ++k) out[k] = to_float(m.row(o)[k]);
}
void load_row(const Fp8Matrix& m, int64_t o, float* out) {
  for (int64_t k = 0; k < m.in; ++k) out[k] = e4m3_to_float(m.code(o, k)) * e8m0_to_float(m.scale(o, k));
}
void load_row(const Fp4Matrix& m, int64_t o, float* out) {
  for (int64_t k = 0; k < m.in; ++k) out[k] = e2m1_to_float(m.code(o, k)) * e8m0_to_float(m.scale(o, k));
}

// The activation as the products see it.
void load_activation(const bf16* x, int64_t size, bool round, float* out) {
  for (int64_t k = 0; k < size; ++k) out[k] = to_float(x[k]);
  if (!round) return;
  for (int64_t begin = 0; begin < size; begin += kScaleBlock) {
    float amax = 0;
    for (int64_t k = begin; k < begin + kScaleBlock; ++k) amax = std::fabs(out[k]) > amax ? std::fabs(out[k]) : amax;
    const float scale = e8m0_to_float(fp8_block_scale(amax));
    for (int64_t k = begin; k < begin + kScaleBlock; ++k) out[k] = e4m3_to_float(float_to_e4m3(out[k] / scale)) * scale;
  }
}

}  // namespace

void linear_ref(const ExecutionContext& context, const LinearParams& p) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t rows = p.x.size[0], out = num_outputs(p.weight), in = num_inputs(p.weight),
                group_out = out / p.num_groups;
  float* x = context.scratch->take<float>(rows * in * p.num_groups);
  float* w = context.scratch->take<float>(in);
  for (int64_t r = 0; r < rows; ++r)
    load_activation(p.x.row(r), in * p.num_groups, p.round_activation, x + r * in * p.num_groups);
  for (int64_t o = 0; o < out; ++o) {
    std::visit([&](const auto& m) { load_row(m, o, w); }, p.weight);
    for (int64_t r = 0; r < rows; ++r) {
      float y = dot_in_lanes(x + (r * p.num_groups + o / group_out) * in, w, in);
      if (!p.bias.empty()) y += p.bias[o];
      if (p.out.data) p.out(r, o) = to_bf16(y);
      else p.out_f32(r, o) = p.add ? p.out_f32(r, o) + y : y;
    }
  }
}

}  // namespace deepinfer
