// SPDX-License-Identifier: MIT
#include "scheduler/admission.h"

namespace deepinfer {
namespace {

double fcfs_score(const WaitingView& view, double) { return static_cast<double>(view.arrival_ns); }
double shortest_score(const WaitingView& view, double aging) {
  return view.remaining_ns - aging * static_cast<double>(view.now_ns - view.arrival_ns);
}

constexpr AdmissionPolicy kPolicies[] = {{"fcfs", fcfs_score}, {"shortest", shortest_score}};

}  // namespace

std::span<const AdmissionPolicy> admission_policies() { return kPolicies; }

const AdmissionPolicy* find_admission_policy(std::string_view name) {
  for (const AdmissionPolicy& policy : kPolicies)
    if (policy.name == name) return &policy;
  return nullptr;
}

}  // namespace deepinfer
