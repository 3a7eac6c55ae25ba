// SPDX-License-Identifier: MIT
#include "kernels/rope/cpu/rope_kernels.h"
#include "kernels/rope/rope.h"

namespace deepinfer {
namespace {

void rope(const ExecutionContext& context, const RopeParams& p, const RopeKernels& kernels) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t pairs = p.cos.size[1], begin = p.x.size[2] - 2 * pairs;
  float* tables = context.scratch->take<float>(context.num_threads() * 4 * pairs);
  for_each_item(context, p.x.size[0], 8 * static_cast<double>(p.x.size[0] * p.x.size[1] * pairs),
                [&](int64_t t, int worker) {
                  float* cos2 = tables + worker * 4 * pairs;
                  float* sin2 = cos2 + 2 * pairs;
                  for (int64_t i = 0; i < pairs; ++i) {
                    const float s = p.inverse ? -p.sin(t, i) : p.sin(t, i);
                    cos2[2 * i] = cos2[2 * i + 1] = p.cos(t, i);
                    sin2[2 * i] = -s;
                    sin2[2 * i + 1] = s;
                  }
                  for (int64_t h = 0; h < p.x.size[1]; ++h)
                    kernels.rotate(reinterpret_cast<uint16_t*>(&p.x(t, h, 0) + begin), cos2, sin2, 2 * pairs);
                });
}

}  // namespace

void rope_avx2(const ExecutionContext& context, const RopeParams& p) { rope(context, p, rope_kernels_avx2()); }
void rope_avx512(const ExecutionContext& context, const RopeParams& p) { rope(context, p, rope_kernels_avx512()); }

}  // namespace deepinfer
