// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "kernels/engram_gate/cpu/engram_gate_kernels.h"
#include "kernels/engram_gate/engram_gate.h"
#include "kernels/lanes/exponential.h"

namespace deepinfer {
namespace {

const uint16_t* words(const bf16* p) { return reinterpret_cast<const uint16_t*>(p); }

float gate(const EngramGateParams& p, const EngramKernels& kernels, int64_t token, int64_t stream) {
  const int64_t hidden = p.x.size[2];
  const uint16_t *x = words(&p.x(token, stream, 0)), *key = words(p.kv.row(token) + stream * hidden);
  const auto inverse_rms = [&](const uint16_t* row) {
    return 1.f / std::sqrt(kernels.sum_squares(row, hidden) / static_cast<float>(hidden) + p.epsilon);
  };
  const float scale = inverse_rms(x) * inverse_rms(key);
  const float d = kernels.dot(x, words(p.q_weight.row(stream)), words(p.k_weight.row(stream)), key, hidden) * scale *
                  (1.f / std::sqrt(static_cast<float>(hidden)));
  return sigmoid_in_lanes(std::copysign(std::sqrt(std::max(std::fabs(d), 1e-6f)), d));
}

void engram_gate(const ExecutionContext& context, const EngramGateParams& p, const EngramKernels& kernels) {
  const int64_t streams = p.x.size[1], hidden = p.x.size[2];
  for_each_item(context, p.x.size[0], 8 * static_cast<double>(p.x.num_elements()), [&](int64_t t, int) {
    if (p.is_image.data && p.is_image(t)) return;
    for (int64_t s = 0; s < streams; ++s)
      kernels.inject(reinterpret_cast<uint16_t*>(&p.x(t, s, 0)), gate(p, kernels, t, s),
                     words(p.kv.row(t) + streams * hidden), hidden);
  });
}

}  // namespace

void engram_gate_avx2(const ExecutionContext& context, const EngramGateParams& p) {
  engram_gate(context, p, engram_gate_kernels_avx2());
}
void engram_gate_avx512(const ExecutionContext& context, const EngramGateParams& p) {
  engram_gate(context, p, engram_gate_kernels_avx512());
}

}  // namespace deepinfer
