// SPDX-License-Identifier: MIT
#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/rope/rope.h"

namespace deepinfer {
namespace {

constexpr int kThreads = 256;

// cos and sin in double, rounded once, as the reference: positions reach 2^20, where fp32 argument reduction would show.
__global__ void angles_kernel(RopeAnglesParams p) {
  const int64_t pairs = p.frequency.size[0], i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= p.position.size[0] * pairs) return;
  const float angle = static_cast<float>(p.position(i / pairs)) * p.frequency(i % pairs);
  double sine, cosine;
  sincos(static_cast<double>(angle), &sine, &cosine);
  p.cos(i / pairs, i % pairs) = static_cast<float>(cosine);
  p.sin(i / pairs, i % pairs) = static_cast<float>(sine);
}

// A thread turns one pair of one head.
__global__ void rotate_kernel(RopeParams p) {
  const int64_t pairs = p.cos.size[1], heads = p.x.size[1], begin = p.x.size[2] - 2 * pairs;
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= p.x.size[0] * heads * pairs) return;
  const int64_t i = at % pairs, h = at / pairs % heads, t = at / pairs / heads;
  bf16& re = p.x(t, h, begin + 2 * i);
  bf16& im = p.x(t, h, begin + 2 * i + 1);
  const float a = to_float(re), b = to_float(im), c = p.cos(t, i), s = p.inverse ? -p.sin(t, i) : p.sin(t, i);
  re = to_bf16(a * c - b * s);
  im = to_bf16(a * s + b * c);
}

void rope_angles_cuda(const ExecutionContext& context, const RopeAnglesParams& p) {
  if (p.cos.num_elements() == 0) return;
  angles_kernel<<<num_blocks(p.cos.num_elements(), kThreads), kThreads, 0, stream_of(context)>>>(p);
  context.device->launched("rope_angles");
}

void rope_cuda(const ExecutionContext& context, const RopeParams& p) {
  const int64_t items = p.x.size[0] * p.x.size[1] * p.cos.size[1];
  if (items == 0) return;
  rotate_kernel<<<num_blocks(items, kThreads), kThreads, 0, stream_of(context)>>>(p);
  context.device->launched("rope");
}

}  // namespace

extern const Launch<RopeAnglesParams> kRopeAnglesCuda = rope_angles_cuda;
extern const Launch<RopeParams> kRopeCuda = rope_cuda;

}  // namespace deepinfer
