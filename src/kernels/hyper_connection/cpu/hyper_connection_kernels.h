// SPDX-License-Identifier: MIT
// Inner loops of the residual-stream ops, one set per instruction level. Plain pointers only.
#pragma once

#include <cstdint>

namespace deepinfer {

// What coefficients of four streams are made with; each of a token's 24 mixed values z becomes z * scale + base first.
struct MixConstants {
  const float *base, *scale;  // [24]
  float epsilon;
  int iterations;
};

struct StreamKernels {
  int64_t mix_tokens;  // most of one call
  float (*sum_squares)(const uint16_t* x, int64_t size);
  // y[t * y_stride + o] = dot of token t's x with fn row o; products rounded before they are added.
  void (*mix)(const uint16_t* x, int64_t x_stride, int64_t num_tokens, const float* fn, int64_t size, int64_t num_out,
              float* y, int64_t y_stride);
  // In place: [num_tokens, 24] mixed values of four streams become pre, post and comb (sinkhorn.h).
  void (*coefficients)(float* mixed, int64_t num_tokens, const MixConstants& constants);
  void (*collapse)(const uint16_t* x, int64_t stream_stride, int64_t streams, const float* pre, int64_t hidden,
                   uint16_t* out);
  // comb[i * streams + j]; out may be x.
  void (*update)(const uint16_t* x, int64_t stream_stride, const uint16_t* y, const float* post, const float* comb,
                 int64_t streams, int64_t hidden, uint16_t* out, int64_t out_stride);
};

const StreamKernels& hyper_connection_kernels_avx2();
const StreamKernels& hyper_connection_kernels_avx512();

}  // namespace deepinfer
