// SPDX-License-Identifier: MIT
// Where the time of a step goes: every op called through a Kernel whose context has a profile adds its seconds (by the
// clock) and its Cost, summed by op. For benches; without a profile an op call asks one pointer. On a device the times
// are the stream's and come after the step (device_profile.h).
#pragma once

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
  std::map<std::string, OpTime> ops;
  std::shared_ptr<DeviceProfile> device;  // made by the engine where ops run on a device
};

}  // namespace deepinfer
