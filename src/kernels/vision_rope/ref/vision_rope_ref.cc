// SPDX-License-Identifier: MIT
#include "kernels/vision_rope/vision_rope.h"

namespace deepinfer {

void vision_rope_ref(const ExecutionContext& context, const VisionRopeParams& p) {
  const int64_t pairs = p.cos.size[1], heads = p.x.size[1], stride = p.x.stride[1];
  constexpr int64_t kTokensPerItem = 64;
  const int64_t num_items = ceil_div(p.x.size[0], kTokensPerItem);
  for_each_item(context, num_items, static_cast<double>(p.x.num_elements()), [&](int64_t item, int) {
    for (int64_t t = item * kTokensPerItem; t < std::min((item + 1) * kTokensPerItem, p.x.size[0]); ++t) {
      const float* cos = p.cos.row(t);
      const float* sin = p.sin.row(t);
      for (int64_t h = 0; h < heads; ++h) {
        bf16* x = p.x.row(t) + h * stride;
        for (int64_t d = 0; d < pairs; ++d) {
          const float a = to_float(x[d]), b = to_float(x[d + pairs]);
          x[d] = to_bf16(a * cos[d] - b * sin[d]);
          x[d + pairs] = to_bf16(b * cos[d] + a * sin[d]);
        }
      }
    }
  });
}

}  // namespace deepinfer
