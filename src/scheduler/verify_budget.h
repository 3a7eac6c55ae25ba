// SPDX-License-Identifier: MIT
// Confidence-scheduled verification of DSpark drafts (dspark-vision.md 2).
// survival a_j of a request's j-th draft = product of the calibrated confidences up to j: non-increasing in j.
// Verifying the K most likely drafts of the whole batch is then a prefix of each request's drafts. The budget K
// maximises expected tokens per second, tokens(K) / step_ns[K]; it is computed from an EARLIER step's confidences,
// because a budget that looks at live ones biases sampling (2.6). The split of K uses live confidences, which depends
// on no token that it admits. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deepinfer {

// Survivals of one request's drafts, from raw confidence logits and calibration temperatures (one per draft position;
// empty = 1). Drafts with survival below 1e-6 are left out.
std::vector<float> survivals(std::span<const float> confidence_logits, std::span<const float> temperatures);

// Production rule: K that maximises (num_sampling + sum of the K largest survivals) / step_ns[K], first maximum wins.
// step_ns[K] = predicted time of the step with K drafts verified, K = 0 .. step_ns.size() - 1.
int64_t verify_budget(std::span<const std::vector<float>> survivals, double num_sampling,
                      std::span<const double> step_ns);

// Single-request rule: stop at the first draft that does not raise the rate.
int64_t verify_budget_early_stop(std::span<const std::vector<float>> survivals, double num_sampling,
                                 std::span<const double> step_ns);

// How many drafts of each request are verified when `budget` are in all: the largest survivals, ties by draft position,
// then by request order (never by token values).
std::vector<int32_t> split_verify_budget(std::span<const std::vector<float>> survivals, int64_t budget);

}  // namespace deepinfer
