// SPDX-License-Identifier: MIT
#include "scheduler/replay_plan.h"

#include <algorithm>

#include "base/check.h"

namespace deepinfer {
namespace {

ReplayPlan plan_fast(const ReplayGeometry& geometry, int64_t hit, int64_t num_prompt_tokens) {
  ReplayPlan plan;
  plan.limits.decoder_begin = std::max<int64_t>(0, num_prompt_tokens - geometry.window);
  plan.limits.decoder_window_begin = plan.limits.decoder_begin;
  if (hit == 0) return plan;
  if (hit <= geometry.window) {
    plan.reason = "fast_replay";
    return plan;
  }
  plan.adopts_hit = true;
  plan.run_begin = hit - geometry.window;
  plan.limits.window_begin = plan.run_begin;
  plan.limits.global_kv_begin = hit;
  return plan;
}

ReplayPlan plan_exact(const ReplayGeometry& geometry, int64_t hit, int64_t num_prompt_tokens) {
  const int64_t encoder = geometry.num_encoder_layers, decoder = geometry.num_layers - encoder;
  ReplayPlan plan;
  if (decoder > 0) plan.limits.decoder_begin = std::max<int64_t>(0, num_prompt_tokens - replay_rows(geometry, decoder));
  plan.limits.decoder_window_begin = plan.limits.decoder_begin;
  if (hit == 0) return plan;
  const int64_t begin = std::min(hit - replay_rows(geometry, encoder) + 1,
                                 num_prompt_tokens - replay_rows(geometry, geometry.num_layers));
  if (begin <= 0) {
    plan.reason = "exact_replay";
    return plan;
  }
  plan.adopts_hit = true;
  plan.run_begin = begin;
  plan.limits.window_begin = begin;
  plan.limits.global_kv_begin = hit;
  return plan;
}

}  // namespace

int64_t replay_rows(const ReplayGeometry& geometry, int64_t num_window_layers) {
  return num_window_layers <= 0 ? 0 : geometry.window + (num_window_layers - 1) * (geometry.window - 1);
}

ReplayPlan plan_replay(const ReplayGeometry& geometry, ReplayMode mode, int64_t hit, int64_t num_prompt_tokens) {
  CHECK(hit >= 0 && num_prompt_tokens > hit);
  CHECK(geometry.num_encoder_layers >= 0 && geometry.num_encoder_layers <= geometry.num_layers);
  switch (mode) {
    case ReplayMode::kFast: return plan_fast(geometry, hit, num_prompt_tokens);
    case ReplayMode::kExact: return plan_exact(geometry, hit, num_prompt_tokens);
    case ReplayMode::kOff: break;
  }
  ReplayPlan plan;
  if (hit > 0) plan.reason = "replay_off";
  return plan;
}

TailRange useful_tails(const ReplayGeometry& geometry, ReplayMode mode, int64_t hit, int64_t num_prompt_tokens) {
  if (mode == ReplayMode::kOff || hit == 0) return {};
  const ReplayPlan plan = plan_replay(geometry, mode, hit, num_prompt_tokens);
  return {plan.adopts_hit ? plan.run_begin : 0, std::min(hit, plan.limits.decoder_begin)};
}

ReplayPlan plan_from_tail(const ReplayGeometry& geometry, ReplayMode mode, int64_t hit, int64_t num_prompt_tokens,
                          int64_t tail) {
  ReplayPlan plan = plan_replay(geometry, mode, hit, num_prompt_tokens);
  CHECK(tail > 0 && tail <= std::min(hit, plan.limits.decoder_begin));
  plan.adopts_hit = true;
  plan.reason = {};
  plan.run_begin = tail;
  plan.limits.window_begin = 0;  // as in a cold run: the lane has every row of the window that may be read
  plan.limits.global_kv_begin = hit;
  return plan;
}

}  // namespace deepinfer
