// SPDX-License-Identifier: MIT
#include <cmath>

#include "kernels/rope/rope.h"

namespace deepinfer {

void rope_angles_ref(const ExecutionContext&, const RopeAnglesParams& p) {
  for (int64_t t = 0; t < p.position.size[0]; ++t) {
    for (int64_t i = 0; i < p.frequency.size[0]; ++i) {
      const float angle = static_cast<float>(p.position(t)) * p.frequency(i);
      p.cos(t, i) = static_cast<float>(std::cos(static_cast<double>(angle)));
      p.sin(t, i) = static_cast<float>(std::sin(static_cast<double>(angle)));
    }
  }
}

void rope_ref(const ExecutionContext&, const RopeParams& p) {
  const int64_t pairs = p.cos.size[1], begin = p.x.size[2] - 2 * pairs;
  for (int64_t t = 0; t < p.x.size[0]; ++t) {
    for (int64_t h = 0; h < p.x.size[1]; ++h) {
      for (int64_t i = 0; i < pairs; ++i) {
        bf16& re = p.x(t, h, begin + 2 * i);
        bf16& im = p.x(t, h, begin + 2 * i + 1);
        const float a = to_float(re), b = to_float(im), c = p.cos(t, i), s = p.inverse ? -p.sin(t, i) : p.sin(t, i);
        re = to_bf16(a * c - b * s);
        im = to_bf16(a * s + b * c);
      }
    }
  }
}

}  // namespace deepinfer
