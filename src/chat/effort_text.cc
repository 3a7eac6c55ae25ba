// SPDX-License-Identifier: MIT
#include "chat/effort_text.h"

#include <fmt/format.h>

namespace deepinfer {

namespace {

constexpr const char* kAbsoluteMaximum =
    "Reasoning Effort: Absolute maximum with no shortcuts permitted.\n"
    "You MUST be very thorough in your thinking and comprehensively decompose the problem to resolve the root cause, "
    "rigorously stress-testing your logic against all potential paths, edge cases, and adversarial scenarios.\n"
    "Explicitly write out your entire deliberation process, documenting every intermediate step, considered "
    "alternative, and "
    "rejected hypothesis to ensure absolutely no assumption is left unchecked.\n\n";

constexpr const char* kBeyondMaximum =
    "Reasoning Effort: Beyond maximum — exhaustive, relentless, and uncompromising.\n"
    "You MUST reason with the utmost depth and rigor, leaving absolutely nothing to chance: exhaustively decompose the "
    "problem "
    "into its most fundamental components, trace every causal chain to its root, and resolve the underlying cause "
    "rather than "
    "any surface symptom.\n"
    "Do not stop reasoning until you have independently verified the solution from multiple angles and are certain "
    "that no "
    "assumption remains unchecked and no error remains undiscovered.\n\n";

int percent_of(ReasoningEffort effort) {
  switch (effort) {
    case ReasoningEffort::kLow: return 50;
    case ReasoningEffort::kHigh:
    case ReasoningEffort::kXhigh: return 75;
    case ReasoningEffort::kMax: return 100;
  }
  return 75;
}

std::string v4_text(ReasoningEffort effort, V4Effort scheme) {
  if (scheme == V4Effort::kOriginal) return effort == ReasoningEffort::kMax ? kAbsoluteMaximum : "";
  if (effort == ReasoningEffort::kLow) return "";
  return effort == ReasoningEffort::kMax ? kBeyondMaximum : kAbsoluteMaximum;
}

}  // namespace

std::string effort_text(const Conversation& conversation, PromptVersion version, V4Effort v4_scheme) {
  if (!conversation.thinking) return "";
  const ReasoningEffort effort = conversation.effort.value_or(ReasoningEffort::kHigh);
  if (version == PromptVersion::kV4) return v4_text(effort, v4_scheme);
  return fmt::format("Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
                     conversation.effort_percent.value_or(percent_of(effort)));
}

}  // namespace deepinfer
