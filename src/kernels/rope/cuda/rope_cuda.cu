// SPDX-License-Identifier: MIT
#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/rope/rope.h"

namespace deepinfer {
namespace {

constexpr int kThreads = 256;

// cos and sin in double, rounded once, as the reference: positions reach 2^20, where fp32 argument reduction would show.
__global__ void angles_kernel(RopeAnglesParams p) {
  begin_overlapped();
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
  begin_overlapped();
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

// The same for four pairs that stand in sixteen bytes.
__global__ void rotate_fours_kernel(RopeParams p) {
  begin_overlapped();
  const uint32_t fours = static_cast<uint32_t>(p.cos.size[1] / 4), heads = static_cast<uint32_t>(p.x.size[1]);
  const uint32_t at = blockIdx.x * kThreads + threadIdx.x, i = at % fours, h = at / fours % heads, t = at / fours / heads;
  if (t >= p.x.size[0]) return;
  auto* values = reinterpret_cast<uint4*>(&p.x(t, h, p.x.size[2] - 8 * fours + 8 * i));
  struct Four {
    alignas(16) float value[4];
  };
  const Four cosines = *reinterpret_cast<const Four*>(&p.cos(t, 4 * i)), sines = *reinterpret_cast<const Four*>(&p.sin(t, 4 * i));
  uint4 eight = *values;
  uint32_t* const words[4] = {&eight.x, &eight.y, &eight.z, &eight.w};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float a = __uint_as_float(*words[k] << 16), b = __uint_as_float(*words[k] & 0xFFFF0000u);
    const float c = cosines.value[k], s = p.inverse ? -sines.value[k] : sines.value[k];
    *words[k] = to_bf16(a * c - b * s).bits | static_cast<uint32_t>(to_bf16(a * s + b * c).bits) << 16;
  }
  *values = eight;
}

bool has_fours(const RopeParams& p) {
  const auto address = [](const void* at) { return reinterpret_cast<uintptr_t>(at); };
  return p.cos.size[1] % 4 == 0 && p.x.size[2] % 8 == 0 && p.x.stride[0] % 8 == 0 && p.x.stride[1] % 8 == 0 &&
         p.cos.stride[0] % 4 == 0 && p.sin.stride[0] % 4 == 0 &&
         (address(p.x.data) | address(p.cos.data) | address(p.sin.data)) % 16 == 0 &&
         p.x.size[0] * p.x.size[1] * p.cos.size[1] < int64_t{1} << 32;
}

void rope_angles_cuda(const ExecutionContext& context, const RopeAnglesParams& p) {
  if (p.cos.num_elements() == 0) return;
  launch_overlapped(context, {num_blocks(p.cos.num_elements(), kThreads), kThreads}, angles_kernel, p);
  context.device->launched("rope_angles");
}

void rope_cuda(const ExecutionContext& context, const RopeParams& p) {
  const int64_t items = p.x.size[0] * p.x.size[1] * p.cos.size[1];
  if (items == 0) return;
  if (has_fours(p)) launch_overlapped(context, {num_blocks(items / 4, kThreads), kThreads}, rotate_fours_kernel, p);
  else launch_overlapped(context, {num_blocks(items, kThreads), kThreads}, rotate_kernel, p);
  context.device->launched("rope");
}

}  // namespace

extern const Launch<RopeAnglesParams> kRopeAnglesCuda = rope_angles_cuda;
extern const Launch<RopeParams> kRopeCuda = rope_cuda;

}  // namespace deepinfer
