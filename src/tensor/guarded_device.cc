// SPDX-License-Identifier: MIT
#include "tensor/guarded_device.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"

namespace deepinfer {
namespace {

constexpr uint8_t kPattern = 0xC5;

struct Guarded {
  const char* name = "";
  int64_t number = 0, bytes = 0;
};

// Where a zone no longer holds the pattern: the bytes overwritten that lie nearest to the buffer.
struct Damage {
  int64_t first = -1, count = 0;
};
Damage find_damage(const std::vector<uint8_t>& zone, bool is_behind) {
  Damage damage;
  for (int64_t i = 0; i < kGuardZoneBytes; ++i) {
    const int64_t at = is_behind ? i : kGuardZoneBytes - 1 - i;
    if (zone[static_cast<size_t>(at)] == kPattern) continue;
    if (damage.first < 0) damage.first = i;
    ++damage.count;
  }
  return damage;
}

class GuardedMemory final : public Memory {
 public:
  explicit GuardedMemory(Device& device) : device_(device), zone_(static_cast<size_t>(kGuardZoneBytes)) {}

  void* allocate(int64_t bytes) override {
    void* all = device_.memory().allocate(bytes + 2 * kGuardZoneBytes);
    if (!all) return nullptr;
    uint8_t* data = static_cast<uint8_t*>(all) + kGuardZoneBytes;
    device_.fill(all, kPattern, kGuardZoneBytes);
    device_.fill(data + bytes, kPattern, kGuardZoneBytes);
    buffers_[data] = {BufferName::current(), ++num_allocated_, bytes};
    return data;
  }
  void release(void* data, int64_t bytes) override {
    if (!data) return;
    const auto found = buffers_.find(static_cast<uint8_t*>(data));
    CHECK(found != buffers_.end());
    static_cast<void>(device_.wait());
    if (const Status status = check(found->first, found->second); !status.ok()) {
      std::fprintf(stderr, "%s\n", status.message().c_str());  // whoever releases asks for no status
      keep(status);
    }
    buffers_.erase(found);
    device_.memory().release(static_cast<uint8_t*>(data) - kGuardZoneBytes, bytes + 2 * kGuardZoneBytes);
  }

  // The device has been waited for.
  void check_all(const char* op) {
    for (const auto& [data, buffer] : buffers_) {
      const Status status = check(data, buffer);
      if (!status.ok()) keep(internal_error(status.message() + (op ? ", seen behind " + std::string(op) : "")));
    }
  }
  const Status& fault() const { return fault_; }

 private:
  Status check(uint8_t* data, const Guarded& buffer) {
    for (const bool is_behind : {true, false}) {
      device_.copy(zone_.data(), is_behind ? data + buffer.bytes : data - kGuardZoneBytes, kGuardZoneBytes);
      TRY(device_.wait());
      const Damage damage = find_damage(zone_, is_behind);
      if (damage.count == 0) continue;
      return internal_error("memory: " + std::to_string(damage.count) + " bytes from byte " +
                            std::to_string(damage.first) + (is_behind ? " behind '" : " in front of '") + buffer.name +
                            "' (buffer " + std::to_string(buffer.number) + ", " + std::to_string(buffer.bytes) +
                            " bytes) were overwritten");
    }
    return {};
  }
  void keep(const Status& status) {
    if (fault_.ok()) fault_ = status;
  }

  Device& device_;
  std::vector<uint8_t> zone_;
  std::map<uint8_t*, Guarded> buffers_;
  int64_t num_allocated_ = 0;
  Status fault_;
};

class GuardedDevice final : public Device {
 public:
  GuardedDevice(std::unique_ptr<Device> device, const GuardOptions& options)
      : device_(std::move(device)), memory_(*device_), options_(options) {}

  bool is_host() const override { return false; }
  void make_current() override { device_->make_current(); }
  std::string describe() const override { return device_->describe() + ", with guarded memory"; }
  Memory& memory() override { return memory_; }
  Memory& staging() override { return device_->staging(); }
  int64_t free_bytes() const override { return device_->free_bytes(); }
  void* stream() const override { return device_->stream(); }
  void copy(void* to, const void* from, int64_t bytes) override { device_->copy(to, from, bytes); }
  void fill(void* data, uint8_t value, int64_t bytes) override { device_->fill(data, value, bytes); }
  void launched(const char* op) override {
    device_->launched(op);
    if (options_.checks_each_op && device_->wait().ok()) memory_.check_all(op);
  }
  Status wait() override {
    TRY(device_->wait());
    memory_.check_all(nullptr);
    return memory_.fault();
  }
  Status status() const override { return memory_.fault().ok() ? device_->status() : memory_.fault(); }
  void mark() override { device_->mark(); }
  Status wait_for_mark() override {
    TRY(device_->wait_for_mark());
    return memory_.fault();
  }
  void begin_graph() override { device_->begin_graph(); }
  std::unique_ptr<DeviceGraph> end_graph() override { return device_->end_graph(); }
  void start_timer() override { device_->start_timer(); }
  double elapsed_ns() override { return device_->elapsed_ns(); }

 private:
  std::unique_ptr<Device> device_;
  GuardedMemory memory_;
  GuardOptions options_;
};

}  // namespace

std::unique_ptr<Device> guard_memory(std::unique_ptr<Device> device, const GuardOptions& options) {
  CHECK(device && !device->is_host());
  return std::make_unique<GuardedDevice>(std::move(device), options);
}

}  // namespace deepinfer
