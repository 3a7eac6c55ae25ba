// SPDX-License-Identifier: MIT
// Choice of experts (model.md 3.11). Input: logits = fp32(x) . fp32(gate.weight), a linear with out_f32. score =
// f(logit / temperature), f = sqrt(softplus), sigmoid or softmax over experts. Chosen: the k highest of score + bias
// (image_bias for image rows), ties to the lowest id, listed by falling score + bias. weight = score / (sum of the
// chosen + 1e-20) * routed_scale; the division only for k > 1 and normalize.
#pragma once

#include "kernels/op.h"
#include "tensor/packed_matrix.h"

namespace deepinfer {

enum class RouterScore { kSqrtSoftplus, kSigmoid, kSoftmax };

struct RouterParams {
  View<const float, dim::tokens, dim::experts> logits;
  F32Vector bias;                             // [experts] or empty
  F32Vector image_bias;                       // [experts] or empty = bias
  View<const uint8_t, dim::tokens> is_image;  // data may be null
  RouterScore score = RouterScore::kSqrtSoftplus;
  float temperature = 1, routed_scale = 1;
  bool normalize = true;
  View<int32_t, dim::tokens, dim::choices> expert;
  View<float, dim::tokens, dim::choices> weight;
};
Status check(const RouterParams& params);
Cost estimate(const RouterParams& params);
KernelRows<RouterParams> router_rows();

}  // namespace deepinfer
