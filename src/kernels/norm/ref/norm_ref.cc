// SPDX-License-Identifier: MIT
#include <cmath>

#include "kernels/lanes/lanes.h"
#include "kernels/norm/norm.h"

namespace deepinfer {

void norm_ref(const ExecutionContext&, const NormParams& p) {
  const int64_t size = p.x.size[1];
  for (int64_t r = 0; r < p.x.size[0]; ++r) {
    LaneSum squares;
    for (int64_t i = 0; i < size; ++i) squares.add(i, to_float(p.x(r, i)) * to_float(p.x(r, i)));
    const float inverse = 1.f / std::sqrt(squares.total() / static_cast<float>(size) + p.epsilon);
    for (int64_t i = 0; i < size; ++i) p.out(r, i) = to_bf16(p.weight[i] * (to_float(p.x(r, i)) * inverse));
  }
}

}  // namespace deepinfer
