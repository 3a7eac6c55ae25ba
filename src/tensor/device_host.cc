// SPDX-License-Identifier: MIT
#include <cstring>

#include "base/check.h"
#include "tensor/device.h"
#include "tensor/memory.h"

namespace deepinfer {
namespace {

class HostMemory final : public Memory {
 public:
  void* allocate(int64_t bytes) override {
    CHECK(bytes >= 0);
    return allocate_zeroed(static_cast<size_t>(bytes));
  }
  void release(void* data, int64_t bytes) override { free_memory(data, static_cast<size_t>(bytes)); }
};

class HostDevice final : public Device {
 public:
  bool is_host() const override { return true; }
  void make_current() override {}
  std::string describe() const override { return "host"; }
  Memory& memory() override { return memory_; }
  Memory& staging() override { return memory_; }
  int64_t free_bytes() const override { return -1; }
  void* stream() const override { return nullptr; }
  void copy(void* to, const void* from, int64_t bytes) override {
    if (bytes > 0 && to != from) std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void fill(void* data, uint8_t value, int64_t bytes) override {
    if (bytes > 0) std::memset(data, value, static_cast<size_t>(bytes));
  }
  void launched(const char*) override {}
  Status wait() override { return {}; }
  Status status() const override { return {}; }
  void mark() override {}
  Status wait_for_mark() override { return {}; }
  void begin_graph() override {}
  std::unique_ptr<DeviceGraph> end_graph() override { return nullptr; }
  void start_timer() override {}
  double elapsed_ns() override { return 0; }

 private:
  HostMemory memory_;
};

}  // namespace

Device& host_device() {
  static HostDevice device;
  return device;
}

}  // namespace deepinfer
