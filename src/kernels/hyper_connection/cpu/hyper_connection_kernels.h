// SPDX-License-Identifier: MIT
// Inner loops of the residual-stream ops, one set per instruction level. Plain pointers only.
#pragma once

#include <cstdint>

namespace deepinfer {

struct StreamKernels {
  float (*sum_squares)(const uint16_t* x, int64_t size);
  // y[t * y_stride + o] = dot of token t's x with fn row o; products rounded before they are added. num_tokens 1 or 2.
  void (*mix)(const uint16_t* x, int64_t x_stride, int64_t num_tokens, const float* fn, int64_t size, int64_t num_out,
              float* y, int64_t y_stride);
  void (*collapse)(const uint16_t* x, int64_t stream_stride, int64_t streams, const float* pre, int64_t hidden,
                   uint16_t* out);
  // comb[i * streams + j]; out may be x.
  void (*update)(const uint16_t* x, int64_t stream_stride, const uint16_t* y, const float* post, const float* comb,
                 int64_t streams, int64_t hidden, uint16_t* out, int64_t out_stride);
};

const StreamKernels& hyper_connection_kernels_avx2();
const StreamKernels& hyper_connection_kernels_avx512();

}  // namespace deepinfer
