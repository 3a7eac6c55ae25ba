// SPDX-License-Identifier: MIT
#include "kernels/router/router.h"

#include <fmt/format.h>

#include "kernels/view_check.h"

namespace deepinfer {

void router_ref(const ExecutionContext& context, const RouterParams& params);
extern const Launch<RouterParams> kRouterCuda;

Status check(const RouterParams& p) {
  const int64_t tokens = p.logits.size[0], experts = p.logits.size[1], choices = p.expert.size[1];
  TRY(check_rows("logits", p.logits));
  TRY(check_rows("expert", p.expert));
  TRY(check_rows("weight", p.weight));
  if (choices < 1 || choices > experts)
    return invalid_argument(fmt::format("expert: choices is {}, expected 1..{}", choices, experts));
  if (!p.bias.empty()) TRY(check_size("bias: size", p.bias.size, experts));
  if (!p.image_bias.empty()) TRY(check_size("image_bias: size", p.image_bias.size, experts));
  if (p.is_image.data) TRY(check_shape("is_image", p.is_image, {tokens}));
  TRY(check_shape("expert", p.expert, {tokens, choices}));
  return check_shape("weight", p.weight, {tokens, choices});
}

Cost estimate(const RouterParams& p) {
  const double n = static_cast<double>(p.logits.num_elements());
  return {.flops = 60 * n, .bytes_read = 4 * n, .bytes_written = 8 * static_cast<double>(p.expert.num_elements())};
}

KernelRows<RouterParams> router_rows() {
  static const KernelRow<RouterParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", router_ref},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kRouterCuda}};
  return kRows;
}

}  // namespace deepinfer
