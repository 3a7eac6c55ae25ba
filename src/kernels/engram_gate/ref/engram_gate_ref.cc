// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "kernels/engram_gate/engram_gate.h"
#include "kernels/lanes/exponential.h"
#include "kernels/lanes/lanes.h"
#include "tensor/float8.h"

namespace deepinfer {
namespace {

// rsqrt(mean(x^2) + epsilon)
float inverse_rms(const bf16* x, int64_t size, float epsilon) {
  LaneSum squares;
  for (int64_t i = 0; i < size; ++i) squares.add(i, to_float(x[i]) * to_float(x[i]));
  return 1.f / std::sqrt(squares.total() / static_cast<float>(size) + epsilon);
}

float gate(const EngramGateParams& p, int64_t token, int64_t stream) {
  const int64_t hidden = p.x.size[2];
  const bf16* x = &p.x(token, stream, 0);
  const bf16* key = p.kv.row(token) + stream * hidden;
  LaneSum products;
  for (int64_t i = 0; i < hidden; ++i)
    products.add(i, to_float(x[i]) * (to_float(p.q_weight.row(stream)[i]) * to_float(p.k_weight.row(stream)[i])) *
                        to_float(key[i]));
  const float scale = inverse_rms(x, hidden, p.epsilon) * inverse_rms(key, hidden, p.epsilon);
  const float d = products.total() * scale * (1.f / std::sqrt(static_cast<float>(hidden)));
  return sigmoid_in_lanes(std::copysign(std::sqrt(std::max(std::fabs(d), 1e-6f)), d));
}

}  // namespace

void engram_rows_ref(const ExecutionContext&, const EngramRowsParams& p) {
  for (int64_t t = 0; t < p.row.size[0]; ++t) {
    bf16* out = p.out.row(t);
    for (int64_t c = 0; c < p.row.size[1]; ++c) {
      const uint8_t* codes = p.table.row(p.row(t, c));
      const uint8_t* scales = p.table.row_scales(p.row(t, c));
      for (int64_t i = 0; i < p.table.columns; ++i)
        *out++ = to_bf16(e4m3_to_float(codes[i]) * e8m0_to_float(scales[i / kScaleBlock]));
    }
  }
}

void engram_gate_ref(const ExecutionContext&, const EngramGateParams& p) {
  const int64_t streams = p.x.size[1], hidden = p.x.size[2];
  for (int64_t t = 0; t < p.x.size[0]; ++t) {
    if (p.is_image.data && p.is_image(t)) continue;
    const bf16* value = p.kv.row(t) + streams * hidden;
    for (int64_t s = 0; s < streams; ++s) {
      const float g = gate(p, t, s);
      for (int64_t i = 0; i < hidden; ++i) p.x(t, s, i) = to_bf16(to_float(p.x(t, s, i)) + g * to_float(value[i]));
    }
  }
}

}  // namespace deepinfer
