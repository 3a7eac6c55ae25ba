// SPDX-License-Identifier: MIT
// For debugging: a device with zones of a known pattern on both sides of every buffer of its memory(). Whether they
// stand is looked at whenever the device is waited for and when a buffer is released; with `checks_each_op` behind
// every op, which is then at fault and must not be recorded into a graph. A write beyond a buffer is kept as the
// device's fault: "memory: 3 bytes from byte 0 behind 'window rings' (buffer 4, 65536 bytes) were overwritten, seen
// behind linear". What lies in one buffer is not told apart: tensors of the weights, pieces of a Scratch, tables of a
// set.
#pragma once

#include <memory>

#include "tensor/device.h"

namespace deepinfer {

inline constexpr int64_t kGuardZoneBytes = 4096;  // on either side

struct GuardOptions {
  bool checks_each_op = false;
};
// `device` is not the host.
std::unique_ptr<Device> guard_memory(std::unique_ptr<Device> device, const GuardOptions& options = {});

// Names the buffers that this thread allocates while it lives; the innermost name counts.
class BufferName {
 public:
  explicit BufferName(const char* name) : outer_(current_) { current_ = name; }
  ~BufferName() { current_ = outer_; }
  BufferName(const BufferName&) = delete;
  BufferName& operator=(const BufferName&) = delete;
  static const char* current() { return current_; }

 private:
  const char* outer_;
  static inline thread_local const char* current_ = "a buffer";
};

}  // namespace deepinfer
