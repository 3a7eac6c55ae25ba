// SPDX-License-Identifier: MIT
#include "kernels/op_profile.h"

#include "base/bench.h"

namespace deepinfer {

double profile_seconds() { return clock_seconds(); }

void add_to_profile(OpProfile& profile, const char* op, double begin, double end, const Cost& cost) {
  auto at = profile.ops.find(op);
  if (at == profile.ops.end()) at = profile.ops.emplace(op, OpTime{}).first;
  OpTime& time = at->second;
  ++time.calls;
  time.seconds += end - begin;
  time.cost += cost;
  profile.own_seconds += profile_seconds() - end;
}

ProfiledPart::ProfiledPart(OpProfile* profile, const char* name)
    : profile_(profile && !profile->device ? profile : nullptr), name_(name) {
  if (profile_) begin_ = profile_seconds();
}

ProfiledPart::~ProfiledPart() {
  if (profile_) add_to_profile(*profile_, name_, begin_, profile_seconds(), {.launches = 0});
}

}  // namespace deepinfer
