// SPDX-License-Identifier: MIT
#include "store/week_simulation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>

#include "base/json.h"

namespace deepinfer {
namespace {

constexpr int64_t kBlocksPerId = 4;       // 512 tokens
constexpr int64_t kSimBlockBytes = 4096;  // stands for 113,920
constexpr double kScale = 113'920.0 / kSimBlockBytes;

// Keeps headers and takes every other page to be zeros.
class HeaderDevice final : public ShardDevice {
 public:
  std::string name() const override { return "headers"; }
  DeviceOperation read(SegmentId segment, int64_t offset, int64_t num_bytes, PageBuffer buffer,
                       DeviceDone done) override {
    std::memset(buffer.data(), 0, static_cast<size_t>(num_bytes));
    {
      const std::lock_guard lock(mutex_);
      const auto at = segments_.find(segment);
      if (at != segments_.end())
        if (const auto page = at->second.find(offset); page != at->second.end())
          std::memcpy(buffer.data(), page->second.data(), page->second.size());
    }
    done({.buffer = std::move(buffer), .num_bytes = num_bytes});
    return {};
  }
  void write(SegmentId segment, int64_t offset, PageBuffer buffer, int64_t, DeviceDone done) override {
    {
      const std::lock_guard lock(mutex_);
      const auto page = buffer.bytes(0, kPageBytes);
      segments_[segment][offset].assign(page.begin(), page.end());
    }
    done({});
  }
  Result<std::vector<SegmentFile>> list() override { return std::vector<SegmentFile>{}; }
  Status drop(SegmentId segment) override {
    const std::lock_guard lock(mutex_);
    segments_.erase(segment);
    return {};
  }

 private:
  std::mutex mutex_;  // guards segments_
  std::map<SegmentId, std::map<int64_t, std::vector<uint8_t>>> segments_;
};

// A chain whose keys follow from the trace's ids: an id names its prefix too, so it alone decides.
std::vector<BlockKey> keys_of(const WeekRequest& request) {
  std::vector<BlockKey> keys;
  for (const uint64_t id : request.blocks)
    for (uint64_t i = 0; i < kBlocksPerId; ++i) {
      const std::array<uint64_t, 2> name = {id, i};
      const Sha256Digest digest = sha256({reinterpret_cast<const uint8_t*>(name.data()), sizeof name});
      BlockKey key;
      std::memcpy(&key, digest.data(), sizeof key);
      keys.push_back(key);
    }
  const int64_t num_full = request.num_prompt_tokens / kBlockKeyTokens;
  if (static_cast<int64_t>(keys.size()) > num_full) keys.resize(static_cast<size_t>(num_full));
  return keys;
}

Result<WeekRequest> request_of(const Json& line) {
  WeekRequest request;
  const Json* const at = line.find("timestamp");
  const Json* const length = line.find("input_length");
  const Json* const ids = line.find("hash_ids");
  if (!at || at->kind() != Json::Kind::kInt || !length || length->kind() != Json::Kind::kInt || !ids ||
      !ids->is_array())
    return invalid_argument("expected timestamp, input_length and hash_ids");
  request.at_ns = at->as_int();
  request.num_prompt_tokens = length->as_int();
  for (const Json& id : ids->as_array()) {
    if (id.kind() != Json::Kind::kInt) return invalid_argument("hash_ids: expected integers");
    request.blocks.push_back(static_cast<uint64_t>(id.as_int()));
  }
  return request;
}

}  // namespace

Result<std::vector<WeekRequest>> parse_week(std::string_view lines, int64_t duration_ns) {
  std::vector<WeekRequest> requests;
  for (int64_t number = 1; !lines.empty(); ++number) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    const std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.empty()) continue;
    auto json = parse_json(line);
    if (!json.ok()) return json.status().prefixed(fmt::format("line {}", number));
    auto request = request_of(json.value());
    if (!request.ok()) return request.status().prefixed(fmt::format("line {}", number));
    requests.push_back(std::move(request).value());
  }
  if (requests.empty()) return invalid_argument("the trace holds no request");
  const double last = static_cast<double>(std::max<int64_t>(requests.back().at_ns, 1));
  for (WeekRequest& request : requests)
    request.at_ns = static_cast<int64_t>(static_cast<double>(request.at_ns) / last * static_cast<double>(duration_ns));
  return requests;
}

Result<WeekReport> simulate_week(const std::vector<WeekRequest>& requests, const WeekOptions& options) {
  ManualClock clock(20'000 * kDayNs);
  StoreOptions store_options;
  store_options.background = false;
  store_options.capacity_bytes = static_cast<int64_t>(static_cast<double>(options.capacity_bytes) / kScale);
  store_options.segment_bytes_max =
      std::max<int64_t>(static_cast<int64_t>(static_cast<double>(options.segment_bytes_max) / kScale), 1 << 20);
  store_options.writer = uint64_t{1} << 40;
  store_options.checkpoint_every_ns = INT64_MAX;
  std::vector<std::unique_ptr<ShardDevice>> devices;
  devices.push_back(std::make_unique<HeaderDevice>());
  ASSIGN_OR_RETURN(const auto store, BlockStore::open(store_options, std::move(devices), clock));
  const StoreScope scope = store->scope({.tenant_salt = "trace", .model_revision = "flash"});
  WeekReport report;
  int64_t next_upkeep_ns = 0;
  for (const WeekRequest& request : requests) {
    clock.advance_ns(std::max<int64_t>(request.at_ns - clock.monotonic_ns(), 0));
    for (; clock.monotonic_ns() >= next_upkeep_ns; next_upkeep_ns += 600 * kSecondNs) store->maintain();
    const std::vector<BlockKey> keys = keys_of(request);
    const int64_t num_hit = store->lookup(scope, keys, false).num_blocks;
    ++report.num_requests;
    report.num_tokens += request.num_prompt_tokens;
    report.num_hit_tokens += num_hit * kBlockKeyTokens;
    if (num_hit < static_cast<int64_t>(keys.size())) {
      StorePut put{.scope = scope, .ttl_class = options.ttl_class, .keys = keys, .first_block = num_hit};
      put.block_bytes = kSimBlockBytes;
      put.bytes.resize(static_cast<size_t>((static_cast<int64_t>(keys.size()) - num_hit) * kSimBlockBytes));
      store->put(std::move(put));
      store->flush();
      if (options.capacity_bytes > 0 && store->stats().num_bytes > store_options.capacity_bytes) store->maintain();
    }
    report.peak_bytes =
        std::max(report.peak_bytes, static_cast<int64_t>(static_cast<double>(store->stats().num_bytes) * kScale));
  }
  report.stats = store->stats();
  report.effective_ttl_hours = report.stats.effective_ttl_s[static_cast<size_t>(options.ttl_class)] / 3600;
  return report;
}

}  // namespace deepinfer
