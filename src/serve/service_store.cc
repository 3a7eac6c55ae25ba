// SPDX-License-Identifier: MIT
#include "serve/service_store.h"

#include <fmt/format.h>

#include "base/log.h"
#include "store/cipher.h"

namespace deepinfer {
namespace {

void one(std::string& out, const char* name, const char* type, const char* help, double value) {
  out += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n{0} {3}\n", name, type, help, value);
}

void head(std::string& out, const char* name, const char* type, const char* help) {
  out += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
}

std::string label_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\n') continue;
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

void append_traffic(std::string& out, const StoreStats& s) {
  const auto n = [](int64_t value) { return static_cast<double>(value); };
  one(out, "deepinfer_store_blocks", "gauge", "Blocks the store can find.", n(s.num_blocks));
  one(out, "deepinfer_store_bytes", "gauge", "Bytes on all devices.", n(s.num_bytes));
  one(out, "deepinfer_store_index_bytes", "gauge", "Memory of the index.", n(s.index_bytes));
  one(out, "deepinfer_store_queries_total", "counter", "Blocks looked up.", n(s.num_blocks_asked));
  one(out, "deepinfer_store_hits_total", "counter", "Blocks found.", n(s.num_blocks_hit));
  one(out, "deepinfer_store_read_bytes_total", "counter", "Bytes of blocks read.", n(s.bytes_read));
  one(out, "deepinfer_store_written_bytes_total", "counter", "Bytes of blocks written.", n(s.bytes_written));
  one(out, "deepinfer_store_puts_dropped_total", "counter", "Writes dropped: the queue was full.",
      n(s.num_puts_dropped));
  one(out, "deepinfer_store_writes_failed_total", "counter", "Extents too few shards took.", n(s.num_writes_failed));
  one(out, "deepinfer_store_writes_full_total", "counter", "Of those, for want of room.", n(s.num_writes_full));
  one(out, "deepinfer_store_late_hedges_total", "counter", "Reads that asked one more shard.", n(s.num_late_hedges));
  one(out, "deepinfer_store_degraded_reads_total", "counter", "Reads with a shard missing.", n(s.num_degraded_reads));
  one(out, "deepinfer_store_damaged_shards_total", "counter", "Rows whose bytes were wrong.", n(s.num_damaged_shards));
  one(out, "deepinfer_store_repaired_total", "counter", "Extents mended.", n(s.num_repaired));
  one(out, "deepinfer_store_pinned_blocks", "gauge", "Blocks kept beyond their time.", n(s.num_pins));
  one(out, "deepinfer_store_read_seconds_p99", "gauge", "99th percentile of recent reads.", n(s.read_p99_ns) * 1e-9);
}

}  // namespace

Result<std::unique_ptr<ServiceStore>> ServiceStore::open(const ServiceStoreOptions& options, const Clock& clock) {
  StoreOptions store_options;
  store_options.capacity_bytes = options.capacity_bytes;
  if (!options.encryption_key.empty()) {
    ASSIGN_OR_RETURN(store_options.master_key, read_master_key(options.encryption_key));
  }
  std::string tenants_file = options.tenants_file;
  if (tenants_file.empty() && !options.target.paths.empty())
    tenants_file = split_list(options.target.paths).front() + "/tenants.json";
  if (tenants_file.empty())
    return invalid_argument("--store-tenants FILE is needed where the store is not a directory");
  ASSIGN_OR_RETURN(StoreTenants tenants, StoreTenants::open(tenants_file));
  std::unique_ptr<ServiceStore> service(new ServiceStore(std::move(tenants)));
  ASSIGN_OR_RETURN(service->store_, open_store(options.target, store_options, service->loop_, clock));
  const StoreRecovery& found = service->store_->recovery();
  log_line(LogLevel::kInfo, "store open",
           {{"extents", found.num_extents},
            {"segments", found.num_segments},
            {"walked", found.num_walked},
            {"unreadable", found.num_unreadable},
            {"devices_silent", found.num_devices_silent}});
  return service;
}

TenantSalt ServiceStore::salt_of(const std::string& owner, const std::string& user) {
  auto salt = tenants_.salt_of(owner);
  // Without a salt that can be kept the data is this run's own: nobody else finds it, and it expires.
  TenantSalt tenant = salt.ok() ? salt.value() : TenantSalt{.salt = "unsaved " + owner};
  tenant.salt += '\0' + user;
  return tenant;
}

Result<bool> ServiceStore::forget(const std::string& owner) {
  ASSIGN_OR_RETURN(const std::optional<std::string> salt, tenants_.drop(owner));
  if (salt) store_->forget_tenant(scope_tags({.tenant_salt = *salt}));
  return salt.has_value();
}

std::string store_metrics(const BlockStore& store) {
  std::string out;
  const StoreStats s = store.stats();
  append_traffic(out, s);
  head(out, "deepinfer_store_misses_total", "counter", "Lookups and reads by the reason they ended.");
  for (int i = 0; i < kNumStoreMisses; ++i)
    out += fmt::format("deepinfer_store_misses_total{{reason=\"{}\"}} {}\n", to_string(static_cast<StoreMiss>(i)),
                       s.misses[static_cast<size_t>(i)]);
  head(out, "deepinfer_store_effective_ttl_seconds", "gauge", "How long data really stays.");
  for (int c = 0; c < kNumTtlClasses; ++c)
    out += fmt::format("deepinfer_store_effective_ttl_seconds{{class=\"{}\"}} {}\n",
                       to_string(static_cast<TtlClass>(c)), s.effective_ttl_s[static_cast<size_t>(c)]);
  head(out, "deepinfer_store_device_state", "gauge", "1 for the state a device is in.");
  for (const StoreDeviceReport& device : store.devices())
    out += fmt::format("deepinfer_store_device_state{{device=\"{}\",state=\"{}\"}} 1\n", label_text(device.name),
                       to_string(device.health.state));
  return out;
}

}  // namespace deepinfer
