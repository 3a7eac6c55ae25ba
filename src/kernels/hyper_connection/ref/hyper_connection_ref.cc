// SPDX-License-Identifier: MIT
#include <cmath>

#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/hyper_connection/sinkhorn.h"
#include "kernels/lanes/lanes.h"

namespace deepinfer {

void stream_mix_ref(const ExecutionContext& context, const StreamMixParams& p) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t size = p.fn.in;
  float* x = context.scratch->take<float>(size);
  float mixed[(2 + kStreamsMax) * kStreamsMax];
  for (int64_t t = 0; t < p.x.size[0]; ++t) {
    for (int64_t k = 0; k < size; ++k) x[k] = to_float(p.x.row(t)[k]);
    const float inverse = 1.f / std::sqrt(dot_in_lanes(x, x, size) / static_cast<float>(size) + p.norm_epsilon);
    for (int64_t o = 0; o < p.fn.out; ++o) mixed[o] = dot_in_lanes(x, p.fn.row(o), size) * inverse;
    write_coefficients(p, t, mixed);
  }
}

void stream_collapse_ref(const ExecutionContext&, const StreamCollapseParams& p) {
  for (int64_t t = 0; t < p.x.size[0]; ++t) {
    for (int64_t d = 0; d < p.x.size[2]; ++d) {
      float sum = 0;
      for (int64_t s = 0; s < p.x.size[1]; ++s) sum += p.pre(t, s) * to_float(p.x(t, s, d));
      p.out(t, d) = to_bf16(sum);
    }
  }
}

void stream_update_ref(const ExecutionContext&, const StreamUpdateParams& p) {
  const int64_t streams = p.x.size[1];
  for (int64_t t = 0; t < p.x.size[0]; ++t) {
    for (int64_t d = 0; d < p.x.size[2]; ++d) {
      float x[kStreamsMax];
      for (int64_t s = 0; s < streams; ++s) x[s] = to_float(p.x(t, s, d));
      for (int64_t j = 0; j < streams; ++j) {
        float sum = 0;
        for (int64_t i = 0; i < streams; ++i) sum += p.comb(t, i, j) * x[i];
        p.out(t, j, d) = to_bf16(sum + p.post(t, j) * to_float(p.y(t, d)));
      }
    }
  }
}

}  // namespace deepinfer
