// SPDX-License-Identifier: MIT
#include <mutex>

#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/lanes/exponential.h"
#include "kernels/vision_activation/vision_activation.h"

namespace deepinfer {

const bf16* gelu_values();  // ref: of every bf16, by its bits

namespace {

constexpr int kThreads = 256, kNumCodes = 1 << 16;

// The error function is the host's library's, so its values are brought over instead of made here.
__device__ bf16 gelu_of_code[kNumCodes];

template <typename Body>
__global__ void each_kernel(int64_t rows, int64_t columns, Body body) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at < rows * columns) body(at / columns, at % columns);
}

template <typename Body>
void for_each(const ExecutionContext& context, const std::array<int64_t, 2>& size, const char* op, const Body& body) {
  if (size[0] * size[1] == 0) return;
  each_kernel<<<num_blocks(size[0] * size[1], kThreads), kThreads, 0, stream_of(context)>>>(size[0], size[1], body);
  context.device->launched(op);
}

void gated_silu_cuda(const ExecutionContext& context, const GatedSiluParams& p) {
  for_each(context, p.out.size, "gated_silu", [p] __device__(int64_t r, int64_t i) {
    p.out(r, i) = to_bf16(round_to_bf16(silu_in_lanes(to_float(p.gate(r, i)))) * to_float(p.up(r, i)));
  });
}

void gelu_cuda(const ExecutionContext& context, const GeluParams& p) {
  static std::once_flag is_brought;
  std::call_once(is_brought, [] { cudaMemcpyToSymbol(gelu_of_code, gelu_values(), sizeof(bf16) * kNumCodes); });
  for_each(context, p.x.size, "gelu",
           [p] __device__(int64_t r, int64_t i) { p.x(r, i) = gelu_of_code[p.x(r, i).bits]; });
}

void residual_cuda(const ExecutionContext& context, const ResidualParams& p) {
  for_each(context, p.x.size, "residual", [p] __device__(int64_t r, int64_t i) {
    p.x(r, i) = to_bf16(to_float(p.x(r, i)) + to_float(p.y(r, i)));
  });
}

}  // namespace

extern const Launch<GatedSiluParams> kGatedSiluCuda = gated_silu_cuda;
extern const Launch<GeluParams> kGeluCuda = gelu_cuda;
extern const Launch<ResidualParams> kResidualCuda = residual_cuda;

}  // namespace deepinfer
