// SPDX-License-Identifier: MIT
// Coefficients of one token from its mixed values (model.md 3.2, steps 3 to 6): a few dozen scalars, the same for every
// row.
#pragma once

#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/lanes/exponential.h"

namespace deepinfer {

inline void sinkhorn(float* c, int n, int iterations, float epsilon) {
  for (int i = 0; i < n; ++i) {  // softmax over destinations counts as the first row step
    float highest = c[i * n], sum = 0;
    for (int j = 1; j < n; ++j) highest = c[i * n + j] > highest ? c[i * n + j] : highest;
    for (int j = 0; j < n; ++j) sum += c[i * n + j] = exp_in_lanes(c[i * n + j] - highest);
    for (int j = 0; j < n; ++j) c[i * n + j] = c[i * n + j] / sum + epsilon;
  }
  for (int step = 0; step < iterations; ++step) {
    for (int i = 0; i < n && step > 0; ++i) {
      float sum = 0;
      for (int j = 0; j < n; ++j) sum += c[i * n + j];
      for (int j = 0; j < n; ++j) c[i * n + j] /= sum + epsilon;
    }
    for (int j = 0; j < n; ++j) {
      float sum = 0;
      for (int i = 0; i < n; ++i) sum += c[i * n + j];
      for (int i = 0; i < n; ++i) c[i * n + j] /= sum + epsilon;
    }
  }
}

// mixed: (2+S)*S values, already times 1/rms.
inline void write_coefficients(const StreamMixParams& p, int64_t token, const float* mixed) {
  const int streams = static_cast<int>(p.x.size[1]);
  for (int i = 0; i < streams; ++i) {
    p.pre(token, i) = sigmoid_in_lanes(mixed[i] * p.scale[0] + p.base[i]) + p.epsilon;
    p.post(token, i) = 2.f * sigmoid_in_lanes(mixed[streams + i] * p.scale[1] + p.base[streams + i]);
  }
  float comb[kStreamsMax * kStreamsMax];
  for (int i = 0; i < streams * streams; ++i) comb[i] = mixed[2 * streams + i] * p.scale[2] + p.base[2 * streams + i];
  sinkhorn(comb, streams, p.iterations, p.epsilon);
  for (int i = 0; i < streams * streams; ++i) p.comb(token, i / streams, i % streams) = comb[i];
}

}  // namespace deepinfer
