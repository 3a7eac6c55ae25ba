// SPDX-License-Identifier: MIT
#include <cmath>
#include <limits>

#include "kernels/lanes/exponential.h"
#include "kernels/lanes/lanes.h"
#include "kernels/router/router.h"

namespace deepinfer {
namespace {

float sqrt_softplus(float z) {
  return std::sqrt(z > 20.f ? z : static_cast<float>(std::log1p(std::exp(static_cast<double>(z)))));
}

void softmax(float* scores, int64_t size) {
  float highest = scores[0];
  for (int64_t e = 1; e < size; ++e) highest = scores[e] > highest ? scores[e] : highest;
  LaneSum sum;
  for (int64_t e = 0; e < size; ++e) sum.add(e, scores[e] = exp_in_lanes(scores[e] - highest));
  const float total = sum.total();
  for (int64_t e = 0; e < size; ++e) scores[e] /= total;
}

void score_experts(const RouterParams& p, int64_t token, float* scores) {
  const int64_t experts = p.logits.size[1];
  for (int64_t e = 0; e < experts; ++e) {
    const float z = p.logits(token, e) / p.temperature;
    scores[e] = p.score == RouterScore::kSqrtSoftplus ? sqrt_softplus(z)
                : p.score == RouterScore::kSigmoid    ? sigmoid_in_lanes(z)
                                                      : z;
  }
  if (p.score == RouterScore::kSoftmax) softmax(scores, experts);
}

// The expert with the highest ranking value among those not taken yet (ranking -inf = taken); the lowest id wins ties.
int64_t best_expert(const float* ranking, const uint8_t* taken, int64_t experts) {
  int64_t best = -1;
  for (int64_t e = 0; e < experts; ++e)
    if (!taken[e] && (best < 0 || ranking[e] > ranking[best])) best = e;
  return best;
}

}  // namespace

void router_ref(const ExecutionContext& context, const RouterParams& p) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t experts = p.logits.size[1], choices = p.expert.size[1];
  float* scores = context.scratch->take<float>(experts);
  float* ranking = context.scratch->take<float>(experts);
  uint8_t* taken = context.scratch->take<uint8_t>(experts);
  for (int64_t t = 0; t < p.logits.size[0]; ++t) {
    score_experts(p, t, scores);
    const bool is_image = p.is_image.data && p.is_image(t) && !p.image_bias.empty();
    const F32Vector& bias = is_image ? p.image_bias : p.bias;
    for (int64_t e = 0; e < experts; ++e) {
      ranking[e] = scores[e] + (bias.empty() ? 0.f : bias[e]);
      taken[e] = 0;
    }
    float sum = 0;
    for (int64_t c = 0; c < choices; ++c) {
      const int64_t e = best_expert(ranking, taken, experts);
      taken[e] = 1;
      p.expert(t, c) = static_cast<int32_t>(e);
      p.weight(t, c) = scores[e];
      sum += scores[e];
    }
    for (int64_t c = 0; c < choices; ++c) {
      if (p.normalize && choices > 1) p.weight(t, c) /= sum + 1e-20f;
      p.weight(t, c) *= p.routed_scale;
    }
  }
}

}  // namespace deepinfer
