// SPDX-License-Identifier: MIT
// What every driver must do, as one list of checks that the tests run over directories and shard servers and
// `deepinfer store check` over any devices, RADOS pools among them. The devices are written to: use ones that hold
// nothing. Thread: one caller.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "store/driver.h"

namespace deepinfer {

// Opens the same devices again; the store closes them in between.
using OpenDevices = std::function<Result<std::vector<std::unique_ptr<ShardDevice>>>()>;

struct ConformanceCheck {
  const char* name;  // a sentence
  Status (*run)(const OpenDevices& open, const Clock& clock);
};
std::vector<ConformanceCheck> conformance_checks();

}  // namespace deepinfer
