// SPDX-License-Identifier: MIT
// Which waiting sequence is next. A policy gives a score; the lowest (level, score, arrival) goes first.
//   fcfs      score = arrival time.
//   shortest  score = predicted remaining time - aging x time waited. A sequence with remaining time C is overtaken by
//   later
//             arrivals for at most C / aging of waiting, so none starves (serving.md 2.6: aging 0.02).
// Priority comes before the score, but waiting raises it: level = priority - floor(waited / priority_wait). A sequence
// of priority p is never overtaken, by priority, by one of priority q that arrives more than (p - q + 1) x
// priority_wait later, so the best priority cannot starve the others either. Pure; thread: plan.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace deepinfer {

struct WaitingView {
  int64_t arrival_ns = 0;
  double remaining_ns = 0;  // predicted work until the first token
  int64_t now_ns = 0;
};

struct AdmissionPolicy {
  std::string_view name;
  double (*score)(const WaitingView& view, double aging);
};

inline int64_t priority_level(int32_t priority, int64_t waited_ns, int64_t priority_wait_ns) {
  return priority - waited_ns / priority_wait_ns;
}

std::span<const AdmissionPolicy> admission_policies();
const AdmissionPolicy* find_admission_policy(std::string_view name);  // nullptr when unknown

}  // namespace deepinfer
