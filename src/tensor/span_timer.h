// SPDX-License-Identifier: MIT
// Device time that a caller's pieces of work (steps) take, and that passes between one and the next, by events on the
// device's stream. Thread: the device's caller.
#pragma once

#include <memory>

#include "tensor/device.h"

namespace deepinfer {

struct DeviceSpan {
  double busy_ns = 0, idle_ns = 0;  // idle: from the end of the piece before to the begin of this one
};

class SpanTimer {
 public:
  // Null where the device is the host or the build has no device with a clock.
  static std::unique_ptr<SpanTimer> make(Device& device);
  virtual ~SpanTimer() = default;
  virtual void begin() = 0;       // in front of a piece
  virtual void end() = 0;         // behind it
  virtual DeviceSpan last() = 0;  // of the piece ended last, once the stream has passed; zeros if its times were lost
};

}  // namespace deepinfer
