// SPDX-License-Identifier: MIT
#include "store/store_report.h"

#include <fmt/format.h>

namespace deepinfer {
namespace {

Json misses_json(const StoreStats& s) {
  Json::Object misses;
  for (int i = 1; i < kNumStoreMisses; ++i)
    misses.emplace_back(to_string(static_cast<StoreMiss>(i)), s.misses[static_cast<size_t>(i)]);
  return misses;
}

Json ttl_json(const StoreStats& s) {
  Json::Object seconds;
  for (int c = 0; c < kNumTtlClasses; ++c)
    seconds.emplace_back(to_string(static_cast<TtlClass>(c)), s.effective_ttl_s[static_cast<size_t>(c)]);
  return seconds;
}

Json devices_json(const BlockStore& store) {
  Json::Array devices;
  for (const StoreDeviceReport& d : store.devices())
    devices.push_back(Json::Object{{"name", d.name},
                                   {"state", to_string(d.health.state)},
                                   {"latency_ms", d.health.latency_ns * 1e-6},
                                   {"queue_depth", d.health.queue_depth},
                                   {"reads", d.health.num_reads},
                                   {"failures", d.health.num_failures},
                                   {"damaged", d.health.num_damaged},
                                   {"free_bytes", d.space.free_bytes},
                                   {"total_bytes", d.space.total_bytes}});
  return devices;
}

}  // namespace

Json store_json(const BlockStore& store) {
  const StoreStats s = store.stats();
  const StoreRecovery& r = store.recovery();
  return Json::Object{
      {"code", fmt::format("{} + {}", store.options().num_data_shards, store.options().num_parity_shards)},
      {"extents", s.num_extents},
      {"blocks", s.num_blocks},
      {"segments", s.num_segments},
      {"bytes", s.num_bytes},
      {"capacity_bytes", s.capacity_bytes},
      {"index_bytes", s.index_bytes},
      {"lookups", s.num_lookups},
      {"blocks_asked", s.num_blocks_asked},
      {"blocks_hit", s.num_blocks_hit},
      {"misses", misses_json(s)},
      {"blocks_read", s.num_blocks_read},
      {"bytes_read", s.bytes_read},
      {"blocks_put", s.num_blocks_put},
      {"blocks_known", s.num_blocks_known},
      {"bytes_written", s.bytes_written},
      {"puts_dropped", s.num_puts_dropped},
      {"writes_failed", s.num_writes_failed},
      {"writes_full", s.num_writes_full},
      {"queue_bytes", s.queue_bytes},
      {"shard_reads", s.num_shard_reads},
      {"late_hedges", s.num_late_hedges},
      {"degraded_reads", s.num_degraded_reads},
      {"damaged_shards", s.num_damaged_shards},
      {"copied_forward", s.num_copied_forward},
      {"repaired", s.num_repaired},
      {"merged", s.num_merged},
      {"segments_expired", s.num_segments_expired},
      {"segments_dropped_early", s.num_segments_dropped_early},
      {"pins", s.num_pins},
      {"effective_ttl_s", ttl_json(s)},
      {"read_p50_ms", static_cast<double>(s.read_p50_ns) * 1e-6},
      {"read_p99_ms", static_cast<double>(s.read_p99_ns) * 1e-6},
      {"recovery", Json::Object{{"from_checkpoint", r.num_from_checkpoint},
                                {"from_footers", r.num_from_footers},
                                {"walked", r.num_walked},
                                {"unreadable", r.num_unreadable},
                                {"devices_silent", r.num_devices_silent}}},
      {"devices", devices_json(store)}};
}

Json scrub_json(const ScrubReport& report) {
  return Json::Object{{"extents", report.num_extents},
                      {"blocks", report.num_blocks},
                      {"damaged_shards", report.num_damaged_shards},
                      {"missing_shards", report.num_missing_shards},
                      {"lost_extents", report.num_lost_extents}};
}

std::string readable(const Json& json, const std::string& indent) {
  std::string out;
  for (const auto& [name, value] : json.as_object()) {
    if (value.is_object()) {
      out += fmt::format("{}{}\n{}", indent, name, readable(value, indent + "  "));
    } else if (value.is_array()) {
      for (const Json& item : value.as_array())
        out += fmt::format("{}{}\n{}", indent, name, readable(item, indent + "  "));
    } else {
      const std::string text = value.is_string() ? value.as_string() : to_json(value);
      out += fmt::format("{}{:<{}}{}\n", indent, name, 26 - static_cast<int>(indent.size()), text);
    }
  }
  return out;
}

}  // namespace deepinfer
