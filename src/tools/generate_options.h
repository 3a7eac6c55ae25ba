// SPDX-License-Identifier: MIT
// Options of `deepinfer generate`, for one completion and for a batch.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "sampler/sampling_params.h"
#include "scheduler/replay_plan.h"
#include "tools/answer_constraint.h"
#include "tools/generate_prompt.h"
#include "tools/model_options.h"

namespace deepinfer {

struct GenerateOptions {
  ModelOptions model;
  GeneratePrompt prompt;
  AnswerConstraint constraint;
  std::string chat_batch;  // JSON lines, "-" for standard input; empty = one completion
  int64_t max_tokens = 0, top_k = 0, seed = -1, logprobs = -1, lanes = 8;
  double temperature = -1, top_p = -1;
  std::string draft = "on";
  std::string exact_ops;  // separated by commas
  bool json = false, explain = false, checks_memory = false;
};
// Options for debugging that would change nothing where they stand. Errors: invalid_argument with what they are for,
// and where --exact-ops has an empty name.
Status check_debug_options(const GenerateOptions& options);
std::vector<std::string> exact_ops(const GenerateOptions& options);

ReplayMode replay_mode(const ModelOptions& options);
// Of decode steps: totals, and per step (the token that every step gives for certain is not counted).
double per_step(int64_t number, int64_t num_steps);
Json draft_json(int64_t num_steps, int64_t num_drafted, int64_t num_accepted);
// What was said on the command line wins over what a request says.
void override_sampling(const GenerateOptions& options, SamplingParams& params);

// --chat-batch: many request bodies through the step loop, one JSON object a line in the order of the input.
Status run_generate_batch(const GenerateOptions& options);

}  // namespace deepinfer
