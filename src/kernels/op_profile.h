// SPDX-License-Identifier: MIT
// Where the time of a step goes: every op called through a Kernel whose context has a profile adds its seconds (by the
// clock, its checks included) and its Cost, summed by op. What a step does beside its ops is named by a ProfiledPart,
// and what the profile itself took is kept apart, so that a step's time can be accounted for whole. For benches;
// without a profile an op call asks one pointer. On a device the times are the stream's and come after the step
// (device_profile.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "kernels/op.h"

namespace deepinfer {

struct OpTime {
  int64_t calls = 0;
  double seconds = 0;
  Cost cost{.launches = 0};
};

class DeviceProfile;

struct OpProfile {
  std::map<std::string, OpTime, std::less<>> ops;  // and parts
  double own_seconds = 0;                          // adding to `ops`: estimates of costs, the look-up
  std::shared_ptr<DeviceProfile> device;           // made by the engine where ops run on a device
  void clear() {
    ops.clear();
    own_seconds = 0;
  }
};

// Host work between ops: from its making to its end under `name`, a literal. No op may be called meanwhile, or its time
// counts twice. Nothing where `profile` is null or a device's.
class ProfiledPart {
 public:
  ProfiledPart(OpProfile* profile, const char* name);
  ~ProfiledPart();
  ProfiledPart(const ProfiledPart&) = delete;
  ProfiledPart& operator=(const ProfiledPart&) = delete;

 private:
  OpProfile* profile_;
  const char* name_;
  double begin_ = 0;
};

}  // namespace deepinfer
