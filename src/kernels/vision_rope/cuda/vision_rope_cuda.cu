// SPDX-License-Identifier: MIT
#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/vision_rope/vision_rope.h"

namespace deepinfer {
namespace {

constexpr int kThreads = 256;

// A thread turns one pair of one head.
__global__ void turn_kernel(VisionRopeParams p) {
  const int64_t pairs = p.cos.size[1], heads = p.x.size[1];
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= p.x.size[0] * heads * pairs) return;
  const int64_t d = at % pairs, h = at / pairs % heads, t = at / pairs / heads;
  bf16 &first = p.x(t, h, d), &second = p.x(t, h, d + pairs);
  const float a = to_float(first), b = to_float(second), c = p.cos(t, d), s = p.sin(t, d);
  first = to_bf16(a * c - b * s);
  second = to_bf16(b * c + a * s);
}

void vision_rope_cuda(const ExecutionContext& context, const VisionRopeParams& p) {
  const int64_t items = p.x.size[0] * p.x.size[1] * p.cos.size[1];
  if (items == 0) return;
  turn_kernel<<<num_blocks(items, kThreads), kThreads, 0, stream_of(context)>>>(p);
  context.device->launched("vision_rope");
}

}  // namespace

extern const Launch<VisionRopeParams> kVisionRopeCuda = vision_rope_cuda;

}  // namespace deepinfer
