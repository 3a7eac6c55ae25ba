// SPDX-License-Identifier: MIT
#include "kernels/op_profile.h"

#include "base/bench.h"

namespace deepinfer {

double profile_seconds() { return clock_seconds(); }

void add_to_profile(OpProfile& profile, const char* op, double seconds, const Cost& cost) {
  OpTime& time = profile.ops[op];
  ++time.calls;
  time.seconds += seconds;
  time.cost += cost;
}

}  // namespace deepinfer
