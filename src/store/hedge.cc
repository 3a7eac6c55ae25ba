// SPDX-License-Identifier: MIT
#include "store/hedge.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"

namespace deepinfer {
namespace {

constexpr double kSmoothing = 0.1;       // weight of the newest latency
constexpr double kQueueCost = 0.25;      // of a waiting operation, in latencies
constexpr int64_t kHistoryReads = 2048;  // then every count is halved

size_t step_of(int64_t ns) {
  const double octaves = std::log2(static_cast<double>(std::max<int64_t>(ns, 1)));
  return std::min<size_t>(255, static_cast<size_t>(octaves * 8));
}
int64_t upper_end(size_t step) { return static_cast<int64_t>(std::exp2(static_cast<double>(step + 1) / 8)); }

}  // namespace

HedgePolicy::HedgePolicy(int num_devices, int num_data_shards, const HedgeOptions& options, const Clock& clock)
    : num_data_shards_(num_data_shards),
      options_(options),
      clock_(clock),
      devices_(static_cast<size_t>(num_devices)),
      late_budget_(options.late_burst) {}

double HedgePolicy::median_latency(const PlacementGroup& group) const {
  std::vector<double> latencies;
  for (const int device : group)
    if (const Device& d = devices_[static_cast<size_t>(device)]; d.health.num_reads > 0)
      latencies.push_back(d.health.latency_ns);
  if (latencies.empty()) return 0;
  std::nth_element(latencies.begin(), latencies.begin() + static_cast<int64_t>(latencies.size() / 2), latencies.end());
  return latencies[latencies.size() / 2];
}

int64_t HedgePolicy::silence_ns(const Device& device, int64_t now_ns) const {
  return device.unanswered_since_ns ? now_ns - *device.unanswered_since_ns : 0;
}

double HedgePolicy::score(const Device& device, int64_t now_ns) const {
  return std::max(device.health.latency_ns * (1 + kQueueCost * device.health.queue_depth),
                  static_cast<double>(silence_ns(device, now_ns)));
}

void HedgePolicy::judge(Device& device, double median_ns, int64_t now_ns) {
  DeviceHealth& health = device.health;
  if (health.state == DeviceState::kDown) return;  // an answer brings it back
  const double limit = std::max(options_.suspect_factor * median_ns, static_cast<double>(options_.stall_ns_min));
  const bool silent = static_cast<double>(silence_ns(device, now_ns)) > limit;
  const bool slow = median_ns > 0 && health.latency_ns > options_.suspect_factor * median_ns;
  if (!slow) device.slow_since_ns.reset();
  else if (!device.slow_since_ns) device.slow_since_ns = now_ns;
  const bool long_slow = slow && now_ns - *device.slow_since_ns >= options_.suspect_after_ns;
  if (silent || long_slow) health.state = DeviceState::kSuspect;
  else if (health.latency_ns <= options_.suspect_factor / 2 * median_ns || median_ns == 0)
    health.state = DeviceState::kGood;
}

ReadPlan HedgePolicy::plan(const PlacementGroup& group) {
  const std::lock_guard lock(mutex_);
  const int64_t now_ns = clock_.monotonic_ns();
  const double median_ns = median_latency(group);
  struct Shard {
    int shard;
    DeviceState state;
    double score;
  };
  std::vector<Shard> shards;
  for (int i = 0; i < static_cast<int>(group.size()); ++i) {
    Device& device = devices_[static_cast<size_t>(group[static_cast<size_t>(i)])];
    judge(device, median_ns, now_ns);
    shards.push_back({i, device.health.state, score(device, now_ns)});
  }
  std::stable_sort(shards.begin(), shards.end(), [](const Shard& a, const Shard& b) {
    return std::pair(a.state, a.score) < std::pair(b.state, b.score);
  });
  late_budget_ = std::min(options_.late_burst, late_budget_ + options_.late_share);
  ReadPlan plan{.hedge_after_ns = std::clamp(percentile_locked(0.95), options_.hedge_ns_min, options_.hedge_ns_max)};
  const auto num_good =
      std::count_if(shards.begin(), shards.end(), [](const Shard& shard) { return shard.state == DeviceState::kGood; });
  const size_t num_wanted = std::min(group.size(), static_cast<size_t>(num_data_shards_) + 1);
  for (const Shard& shard : shards) {
    Device& device = devices_[static_cast<size_t>(group[static_cast<size_t>(shard.shard)])];
    const bool good = shard.state == DeviceState::kGood;
    // Too few good ones: whoever may still answer is asked, for there is nobody to spare.
    const bool needed = !good && num_good < num_data_shards_ && shard.state == DeviceState::kSuspect;
    const bool probe = !good && now_ns - device.last_probe_ns >= options_.probe_every_ns;
    if (probe) device.last_probe_ns = now_ns;
    const bool ask = needed || probe || (good && plan.first.size() < num_wanted);
    (ask ? plan.first : plan.spares).push_back(shard.shard);
  }
  return plan;
}

bool HedgePolicy::may_hedge_late() {
  const std::lock_guard lock(mutex_);
  if (late_budget_ < 1) return false;
  late_budget_ -= 1;
  return true;
}

void HedgePolicy::started(int device) {
  const std::lock_guard lock(mutex_);
  Device& d = devices_[static_cast<size_t>(device)];
  ++d.health.num_outstanding;
  if (!d.unanswered_since_ns) d.unanswered_since_ns = clock_.monotonic_ns();
}

void HedgePolicy::finished(int device, int64_t latency_ns, int64_t queue_depth, Outcome outcome) {
  const std::lock_guard lock(mutex_);
  Device& d = devices_[static_cast<size_t>(device)];
  DeviceHealth& health = d.health;
  --health.num_outstanding;
  if (outcome == Outcome::kCancelled) return;  // it still owes an answer
  d.unanswered_since_ns.reset();
  if (health.num_outstanding > 0) d.unanswered_since_ns = clock_.monotonic_ns();
  if (outcome == Outcome::kFailed) {
    ++health.num_failures;
    if (++d.num_failures_in_row >= options_.failures_until_down) health.state = DeviceState::kDown;
    return;
  }
  d.num_failures_in_row = 0;
  if (health.state == DeviceState::kDown) health.state = DeviceState::kGood;
  const double latency = static_cast<double>(latency_ns);
  health.latency_ns =
      health.num_reads++ == 0 ? latency : health.latency_ns + kSmoothing * (latency - health.latency_ns);
  health.queue_depth += kSmoothing * (static_cast<double>(queue_depth) - health.queue_depth);
}

void HedgePolicy::damaged(int device) {
  const std::lock_guard lock(mutex_);
  ++devices_[static_cast<size_t>(device)].health.num_damaged;
}

void HedgePolicy::read_took(int64_t ns) {
  const std::lock_guard lock(mutex_);
  ++histogram_[step_of(ns)];
  if (++num_samples_ < kHistoryReads) return;
  num_samples_ = 0;
  for (int64_t& count : histogram_) num_samples_ += count /= 2;
}

int64_t HedgePolicy::percentile_locked(double share) const {
  int64_t seen = 0;
  for (size_t step = 0; step < histogram_.size(); ++step) {
    seen += histogram_[step];
    if (seen > 0 && static_cast<double>(seen) >= share * static_cast<double>(num_samples_)) return upper_end(step);
  }
  return 0;
}

int64_t HedgePolicy::percentile_ns(double share) const {
  const std::lock_guard lock(mutex_);
  return percentile_locked(share);
}

DeviceHealth HedgePolicy::health(int device) const {
  const std::lock_guard lock(mutex_);
  return devices_[static_cast<size_t>(device)].health;
}

}  // namespace deepinfer
