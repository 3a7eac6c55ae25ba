// SPDX-License-Identifier: MIT
// Where bytes lie: host memory, or memory of a device. Thread: any for the host, the device's caller for a device.
#pragma once

#include <cstdint>

namespace deepinfer {

class Memory {
 public:
  virtual ~Memory() = default;
  // Zeroed bytes, aligned to 64 at least; null where there are none left.
  virtual void* allocate(int64_t bytes) = 0;
  virtual void release(void* data, int64_t bytes) = 0;
};

}  // namespace deepinfer
