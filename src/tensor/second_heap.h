// SPDX-License-Identifier: MIT
// Test only: a device whose memory is not the host's, without such a device: a second heap that every byte must be
// copied to. Whatever the host forgets to bring over, or reads from the wrong side, shows as other bits.
#pragma once

#include "tensor/device.h"

namespace deepinfer {

class SecondHeap : public Device {
 public:
  bool is_host() const override { return false; }
  void make_current() override {}
  std::string describe() const override { return "a second heap"; }
  Memory& memory() override { return host_device().memory(); }
  Memory& staging() override { return host_device().staging(); }
  int64_t free_bytes() const override { return -1; }
  void* stream() const override { return nullptr; }
  void copy(void* to, const void* from, int64_t bytes) override { host_device().copy(to, from, bytes); }
  void fill(void* data, uint8_t value, int64_t bytes) override { host_device().fill(data, value, bytes); }
  void launched(const char*) override {}
  Status wait() override { return {}; }
  Status status() const override { return {}; }
  void mark() override {}
  Status wait_for_mark() override { return {}; }
  void begin_graph() override {}
  std::unique_ptr<DeviceGraph> end_graph() override { return nullptr; }
  void start_timer() override {}
  double elapsed_ns() override { return 0; }
};

}  // namespace deepinfer
