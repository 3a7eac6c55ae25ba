// SPDX-License-Identifier: MIT
// Points of a device's stream in the order they were put there, and the device time between them. Put while a graph is
// recorded, a point becomes part of it and is passed anew with each launch. Thread: the device's caller.
#pragma once

#include <memory>
#include <vector>

#include "tensor/device.h"

namespace deepinfer {

class StreamMarks {
 public:
  // Null where the device is the host or the build has no device with a clock.
  static std::unique_ptr<StreamMarks> make(Device& device);
  virtual ~StreamMarks() = default;
  virtual void put() = 0;
  // Forgets all. Graphs that hold points put before must not run any more beside new ones.
  virtual void clear() = 0;
  // Nanoseconds from each point to the next, as passed last; the stream has passed them all. Zeros where a time was
  // lost.
  virtual std::vector<double> gaps_ns() const = 0;
};

}  // namespace deepinfer
