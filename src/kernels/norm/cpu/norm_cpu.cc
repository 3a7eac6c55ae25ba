// SPDX-License-Identifier: MIT
#include <cmath>

#include "kernels/norm/cpu/norm_kernels.h"
#include "kernels/norm/norm.h"

namespace deepinfer {
namespace {

const uint16_t* words(const bf16* p) { return reinterpret_cast<const uint16_t*>(p); }

void norm(const ExecutionContext& context, const NormParams& p, const NormKernels& kernels) {
  const int64_t size = p.x.size[1];
  for_each_item(context, p.x.size[0], 4 * static_cast<double>(p.x.num_elements()), [&](int64_t r, int) {
    const float inverse =
        1.f / std::sqrt(kernels.sum_squares(words(p.x.row(r)), size) / static_cast<float>(size) + p.epsilon);
    kernels.scale(words(p.x.row(r)), words(p.weight.data), inverse, size, reinterpret_cast<uint16_t*>(p.out.row(r)));
  });
}

}  // namespace

void norm_avx2(const ExecutionContext& context, const NormParams& p) { norm(context, p, norm_kernels_avx2()); }
void norm_avx512(const ExecutionContext& context, const NormParams& p) { norm(context, p, norm_kernels_avx512()); }

}  // namespace deepinfer
