// SPDX-License-Identifier: MIT
// The machine that ops run on. A device has memory of its own, staging memory on the host that it copies from without
// waiting, and one stream: everything given to it runs in order. On the host device both memories are the host's and
// everything is done when the call returns. Thread: one caller.
//
// Faults (a kernel that could not be launched, memory that could not be had, an address that does not exist) stick: the
// first is kept, and status() and wait() give it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/status.h"
#include "tensor/device_memory.h"

namespace deepinfer {

// Work recorded once and launched again with the same addresses.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void launch() = 0;  // on the device's stream
};

class Device {
 public:
  virtual ~Device() = default;

  virtual bool is_host() const = 0;
  virtual void make_current() = 0;           // for the calling thread: before its first call of another kind
  virtual std::string describe() const = 0;  // "NVIDIA H200, compute capability 9.0, ..."
  virtual Memory& memory() = 0;
  virtual Memory& staging() = 0;
  virtual int64_t free_bytes() const = 0;  // of memory(); -1 where nobody counts (the host)
  virtual void* stream() const = 0;        // the driver's handle; null on the host

  // In stream order. Host sides are staging memory and stay as they are until the stream has passed; other host memory
  // may be used, too, and is waited for.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual void fill(void* data, uint8_t value, int64_t bytes) = 0;

  // Called behind each launch of an op: keeps a launch fault; waits for the op where the device was opened so.
  virtual void launched(const char* op) = 0;
  virtual Status wait() = 0;  // for everything given so far
  virtual Status status() const = 0;

  // Marks a point of the stream; wait_for_mark() returns when the stream has passed the newest one.
  virtual void mark() = 0;
  virtual Status wait_for_mark() = 0;

  // Between begin_graph() and end_graph() work is recorded instead of run. Null where the device has no graphs or the
  // recording failed (see status()).
  virtual void begin_graph() = 0;
  virtual std::unique_ptr<DeviceGraph> end_graph() = 0;

  // Nanoseconds of device time between two marks of its clock, for benches: start_timer(), then elapsed_ns().
  virtual void start_timer() = 0;
  virtual double elapsed_ns() = 0;
};

// One for the whole process, without state.
Device& host_device();

struct CudaOptions {
  int ordinal = 0;
  bool waits_after_each_op = false;   // finds the op at fault
  bool keeps_memory_on_host = false;  // memory() is staging memory: for tests that look into caches
};
// Errors: unavailable, saying what is missing: the build, the driver, a device, its compute capability.
Result<std::unique_ptr<Device>> open_cuda_device(const CudaOptions& options = {});
// "compiled for compute capability 9.0; driver 13.0; device 0: NVIDIA H200 ..." or what is missing.
std::string describe_cuda();

}  // namespace deepinfer
