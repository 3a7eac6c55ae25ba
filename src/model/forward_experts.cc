// SPDX-License-Identifier: MIT
// The expert sublayer (model.md 3.11): router, plan, routed experts between dispatch and combine, shared expert, sum.
#include "model/forward_state.h"

namespace deepinfer {
namespace {

using State = Forward::State;

RouterScore router_score(ScoreFunction score) {
  switch (score) {
    case ScoreFunction::kSigmoid: return RouterScore::kSigmoid;
    case ScoreFunction::kSoftmax: return RouterScore::kSoftmax;
    case ScoreFunction::kSqrtSoftplus: break;
  }
  return RouterScore::kSqrtSoftplus;
}

void route(State& state, int layer, int64_t rows, int64_t choices, const uint8_t* is_image) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const MoeWeights& moe = state.layer_weights(layer).moe;
  const int64_t experts = moe.gate.out;
  state.kernels.linear(state.context, {.x = {work.input.data(), {rows, config.hidden}},
                                       .weight = moe.gate,
                                       .out_f32 = {work.router_logits.data(), {rows, experts}}});
  state.kernels.router(state.context, {.logits = {work.router_logits.data(), {rows, experts}},
                                       .bias = moe.bias,
                                       .image_bias = moe.image_bias,
                                       .is_image = {is_image, {rows}},
                                       .score = router_score(config.score),
                                       .temperature = config.gate_temperature,
                                       .routed_scale = config.routed_scale,
                                       .normalize = config.normalize_scores,
                                       .expert = {work.expert.data(), {rows, choices}},
                                       .weight = {work.expert_weight.data(), {rows, choices}}});
  trace_rows(state, layer, "gate_idx", work.expert.data(), {rows, choices});
  trace_rows(state, layer, "gate_w", work.expert_weight.data(), {rows, choices});
}

ExpertAssignments plan(State& state, int64_t rows, int64_t choices, int64_t experts) {
  Workspace& work = state.work;
  const int64_t num = rows * choices;
  state.kernels.expert_plan(state.context, {.expert = {work.expert.data(), {rows, choices}},
                                            .weight = {work.expert_weight.data(), {rows, choices}},
                                            .begin = {work.expert_begin.data(), {experts + 1}},
                                            .token = {work.assignment_row.data(), {num}},
                                            .assignment_weight = {work.assignment_weight.data(), {num}},
                                            .assignment = {work.assignment.data(), {rows, choices}}});
  return {{work.expert_begin.data(), {experts + 1}},
          {work.assignment_row.data(), {num}},
          {work.assignment_weight.data(), {num}}};
}

// On a device every scale was looked at when the weights were brought there.
Status touch_experts(State& state, int layer, const ExpertAssignments& assignments) {
  if (!state.device.is_host()) return {};
  const int32_t experts = static_cast<int32_t>(assignments.begin.size[0] - 1);
  state.used_experts.clear();
  for (int32_t e = 0; e < experts; ++e)
    if (assignments.begin(e) < assignments.begin(e + 1)) state.used_experts.push_back(e);
  if (state.parts.residency) state.parts.residency->require(layer, state.used_experts, state.context.pool);
  for (const int32_t e : state.used_experts) TRY(state.weights.touch_expert(layer, e));
  return {};
}

void run_shared(State& state, int layer, int64_t rows) {
  Workspace& work = state.work;
  state.kernels.experts(state.context, {.x = {work.input.data(), {rows, state.config.hidden}},
                                        .experts = state.shared[static_cast<size_t>(layer)],
                                        .begin = {state.shared_begin().on_device(), {2}},
                                        .swiglu_limit = state.config.swiglu_limit,
                                        .out = {work.shared_out.data(), {rows, state.config.hidden}}});
  trace_rows(state, layer, "shared_out", work.shared_out.data(), {rows, state.config.hidden});
}

}  // namespace

Status run_experts(State& state, int layer, int64_t rows, const uint8_t* is_image) {
  Workspace& work = state.work;
  const ModelConfig& config = state.config;
  const bool is_draft = layer >= config.num_layers;
  const int64_t choices = is_draft ? config.draft.experts_per_token : config.experts_per_token;
  const int64_t experts = static_cast<int64_t>(state.experts[static_cast<size_t>(layer)].size()),
                hidden = config.hidden;
  trace_rows(state, layer, "ffn_in", work.input.data(), {rows, hidden});
  route(state, layer, rows, choices, is_image);
  ASSIGN_OR_RETURN(const DispatchedRows mine, state.parts.exchange.dispatch({work.input.data(), {rows, hidden}},
                                                                            plan(state, rows, choices, experts)));
  TRY(touch_experts(state, layer, mine.assignments));
  const int64_t num = mine.assignments.num_assignments();
  state.kernels.experts(state.context, {.x = mine.x,
                                        .experts = state.experts[static_cast<size_t>(layer)],
                                        .begin = mine.assignments.begin,
                                        .token = {mine.assignments.row.data, {num}},
                                        .weight = {mine.assignments.weight.data, {num}},
                                        .swiglu_limit = config.swiglu_limit,
                                        .out = {work.expert_out.data(), {num, hidden}}});
  ASSIGN_OR_RETURN(const auto results, state.parts.exchange.combine({work.expert_out.data(), {num, hidden}}));
  run_shared(state, layer, rows);
  state.kernels.expert_combine(state.context, {.y = {results.data, {results.size[0], hidden}},
                                               .assignment = {work.assignment.data(), {rows, choices}},
                                               .shared = {work.shared_out.data(), {rows, hidden}},
                                               .out = {work.output.data(), {rows, hidden}}});
  trace_rows(state, layer, "ffn_out", work.output.data(), {rows, hidden});
  return {};
}

}  // namespace deepinfer
