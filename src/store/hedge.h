// SPDX-License-Identifier: MIT
// Which shards a read asks, and when it asks one more (serving.md 9.8). k + 1 at once, leaving out the device with the
// worst score (smoothed latency and queue depth, or the age of what it has not answered); the one left out joins late,
// after the 95th percentile of recent reads, for at most 2 % of reads. A device far slower than its peers is suspect:
// it is the one left out. With two bad devices exactly the k good ones are
// asked, with more everyone who may answer. Suspects and dead devices are tried
// again from time to time by one extra read. Thread: any.
#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "store/placement.h"

namespace deepinfer {

struct HedgeOptions {
  double suspect_factor = 5;                 // times the median latency of its peers
  int64_t suspect_after_ns = 2'000'000'000;  // of being that slow
  int64_t stall_ns_min = 20'000'000;         // silence that counts as a stall is never shorter
  int64_t probe_every_ns = 250'000'000;      // a suspect or dead device is asked once in this time
  int64_t hedge_ns_min = 300'000, hedge_ns_max = 1'000'000'000;
  double late_share = 0.02, late_burst = 16;  // late hedges a read, and how many may come together
  int failures_until_down = 3;                // in a row
};

enum class DeviceState { kGood, kSuspect, kDown };
constexpr std::string_view to_string(DeviceState state) {
  constexpr std::string_view kNames[] = {"good", "suspect", "down"};
  return kNames[static_cast<int>(state)];
}

struct DeviceHealth {
  DeviceState state = DeviceState::kGood;
  double latency_ns = 0;  // smoothed
  double queue_depth = 0;
  int64_t num_reads = 0, num_failures = 0, num_damaged = 0, num_outstanding = 0;
};

struct ReadPlan {
  std::vector<int> first;   // positions in the group (shards) to ask at once
  std::vector<int> spares;  // in the order in which to ask them later
  int64_t hedge_after_ns = 0;
};

class HedgePolicy {
 public:
  HedgePolicy(int num_devices, int num_data_shards, const HedgeOptions& options, const Clock& clock);

  ReadPlan plan(const PlacementGroup& group);
  bool may_hedge_late();  // takes one from the budget

  void started(int device);
  enum class Outcome { kAnswered, kFailed, kCancelled };
  void finished(int device, int64_t latency_ns, int64_t queue_depth, Outcome outcome);
  void damaged(int device);    // it answered with bytes that are not those written
  void read_took(int64_t ns);  // a whole read, from its first request to its decoding

  DeviceHealth health(int device) const;
  bool is_down(int device) const { return health(device).state == DeviceState::kDown; }
  int64_t percentile_ns(double share) const;  // of recent whole reads; 0 before there are any

 private:
  struct Device {
    DeviceHealth health;
    std::optional<int64_t> unanswered_since_ns;  // it was asked then, or answered last, and owes an answer
    std::optional<int64_t> slow_since_ns;
    int64_t last_probe_ns = 0;
    int num_failures_in_row = 0;
  };
  void judge(Device& device, double median_ns, int64_t now_ns);
  double median_latency(const PlacementGroup& group) const;
  int64_t silence_ns(const Device& device, int64_t now_ns) const;
  double score(const Device& device, int64_t now_ns) const;
  int64_t percentile_locked(double share) const;

  int num_data_shards_;
  HedgeOptions options_;
  const Clock& clock_;
  mutable std::mutex mutex_;  // guards what follows
  std::vector<Device> devices_;
  std::array<int64_t, 256> histogram_{};  // of whole reads: eight steps an octave
  int64_t num_samples_ = 0;
  double late_budget_;
};

}  // namespace deepinfer
