// SPDX-License-Identifier: MIT
// deepinfer store: the KV store by hand and by script. put, get and lookup work on a file of token ids and a file of
// opaque bytes; keys follow from tenant, model revision and format as everywhere.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <numeric>
#include <string>

#include "base/file.h"
#include "base/json.h"
#include "base/philox.h"
#include "store/cipher.h"
#include "store/conformance.h"
#include "store/driver_dir.h"
#include "store/members.h"
#include "store/shard_server.h"
#include "store/store_report.h"
#include "store/store_target.h"
#include "store/tenants.h"
#include "tools/command.h"
#include "tools/interrupt.h"
#include "tools/progress.h"
#include "tools/stop_signals.h"
#include "tools/token_ids.h"

namespace deepinfer {
namespace {

struct StoreArguments {
  std::string action;
  StoreTarget target;
  std::string secret_file, key_file, tenants_file, host = "127.0.0.1", advertised, name;
  std::string tenant = "default", revision = "none", ttl_class = "chat", ids, payload, output = "-";
  int64_t seconds = 5, port = 7420, format = 1, block_bytes = 0, capacity_gb = 0, num_threads = 1, first_block = 0;
  bool json = false, exact = false, no_direct = false, no_uring = false;
};

constexpr const char* kActionNames = "serve, put, get, lookup, stat, scrub, pin, unpin, forget, bench or check";
constexpr int64_t kBenchBlockBytes = 113'920;  // of Flash

Status print_json(const Json& json) { return write_file_atomically("-", to_json(json) + "\n"); }

Result<FrameSecurity> security_of(const StoreArguments& a) {
  FrameSecurity security = a.target.security;
  ASSIGN_OR_RETURN(security.secret, read_shard_secret(a.secret_file));
  TRY(check_shard_tls(security));
  return security;
}

// The store, and what must outlive it.
struct OpenStore {
  SystemClock clock;
  std::unique_ptr<FrameLoop> loop = std::make_unique<FrameLoop>();
  std::unique_ptr<BlockStore> store;
};

Result<std::unique_ptr<OpenStore>> open(const StoreArguments& a) {
  if (a.action != "put" && a.action != "bench")  // these make a store
    for (const std::string& path : split_list(a.target.paths))
      if (!std::filesystem::is_directory(path)) return not_found(path + ": there is no store");
  auto opened = std::make_unique<OpenStore>();
  StoreTarget target = a.target;
  ASSIGN_OR_RETURN(target.security, security_of(a));
  StoreOptions options;
  options.capacity_bytes = a.capacity_gb * 1'000'000'000;
  if (!a.key_file.empty()) { ASSIGN_OR_RETURN(options.master_key, read_master_key(a.key_file)); }
  ASSIGN_OR_RETURN(opened->store, open_store(target, options, *opened->loop, opened->clock));
  return opened;
}

// Salts stand beside a directory's data; for other drivers the file is named.
Result<StoreTenants> tenants_of(const StoreArguments& a) {
  std::string path = a.tenants_file;
  if (path.empty() && !a.target.paths.empty()) path = split_list(a.target.paths).front() + "/tenants.json";
  if (path.empty()) return invalid_argument("expected --tenants FILE, where the salts of tenants are kept");
  return StoreTenants::open(path);
}

struct Chain {
  StoreScope scope;
  std::vector<TokenId> tokens;
  std::vector<BlockKey> keys;
};

Result<Chain> chain_of(const StoreArguments& a, const BlockStore& store) {
  if (a.ids.empty()) return invalid_argument("expected --ids FILE, a JSON array of token ids");
  ASSIGN_OR_RETURN(const std::string text, read_file(a.ids));
  Chain chain;
  ASSIGN_OR_RETURN(chain.tokens, parse_token_ids(text, INT32_MAX));
  ASSIGN_OR_RETURN(StoreTenants tenants, tenants_of(a));
  ASSIGN_OR_RETURN(const TenantSalt salt, tenants.salt_of(a.tenant));
  const KeyScope scope{salt.salt, a.revision, static_cast<uint32_t>(a.format)};
  chain.keys = BlockKeyChain(scope).extend(chain.tokens);
  chain.scope = store.scope(scope);
  chain.scope.was_deleted = salt.was_deleted;
  if (chain.keys.empty())
    return invalid_argument(fmt::format("{}: {} tokens, a block has {}", a.ids, chain.tokens.size(), kBlockKeyTokens));
  return chain;
}

Status put(const StoreArguments& a, BlockStore& store) {
  ASSIGN_OR_RETURN(const Chain chain, chain_of(a, store));
  if (a.first_block >= static_cast<int64_t>(chain.keys.size()))
    return invalid_argument(
        fmt::format("--first-block {}: the ids make {} blocks, numbered from 0", a.first_block, chain.keys.size()));
  if (a.payload.empty()) return invalid_argument("expected --payload FILE with the bytes of the blocks");
  ASSIGN_OR_RETURN(const std::string payload, read_file(a.payload, size_t{16} << 30));
  const auto num_blocks = static_cast<int64_t>(chain.keys.size()) - a.first_block;
  const auto size = static_cast<int64_t>(payload.size());
  const int64_t block_bytes = a.block_bytes > 0 ? a.block_bytes : size / num_blocks;
  if (block_bytes < 1 || num_blocks * block_bytes != size)
    return invalid_argument(
        fmt::format("{}: {} bytes do not make {} blocks of {} bytes", a.payload, size, num_blocks, block_bytes));
  if (block_bytes > kBlockBytesMax)
    return invalid_argument(fmt::format("blocks of {} bytes, at most {} are taken", block_bytes, kBlockBytesMax));
  const int64_t failed_before = store.stats().num_writes_failed + store.stats().num_puts_dropped;
  const auto ttl_class = ttl_class_named(a.ttl_class);
  for (int64_t at = 0; at < num_blocks && !interrupted(); at += kExtentBlocks) {  // bounded memory in the queue
    const int64_t end = std::min(num_blocks, at + kExtentBlocks);
    store.put({.scope = chain.scope,
               .ttl_class = *ttl_class,
               .keys = {chain.keys.begin(), chain.keys.begin() + a.first_block + end},
               .first_block = a.first_block + at,
               .block_bytes = block_bytes,
               .bytes = {payload.begin() + at * block_bytes, payload.begin() + end * block_bytes},
               .tokens = {chain.tokens.begin() + (a.first_block + at) * kBlockKeyTokens,
                          chain.tokens.begin() + (a.first_block + end) * kBlockKeyTokens}});
    store.flush();
  }
  const StoreStats stats = store.stats();
  if (stats.num_writes_failed + stats.num_puts_dropped > failed_before)
    return unavailable("too few shards took the blocks; 'deepinfer store stat' says which are away or full");
  return print_json(Json::Object{{"blocks", num_blocks},
                                 {"block_bytes", block_bytes},
                                 {"written", stats.num_blocks_put},
                                 {"known", stats.num_blocks_known}});
}

Status lookup(const StoreArguments& a, BlockStore& store) {
  ASSIGN_OR_RETURN(const Chain chain, chain_of(a, store));
  const StoreLookup found = store.lookup(chain.scope, chain.keys, a.exact);
  return print_json(Json::Object{{"blocks", found.num_blocks},
                                 {"tokens", found.num_blocks * kBlockKeyTokens},
                                 {"asked", static_cast<int64_t>(chain.keys.size())},
                                 {"reason", to_string(found.reason)}});
}

Status get(const StoreArguments& a, BlockStore& store) {
  ASSIGN_OR_RETURN(const Chain chain, chain_of(a, store));
  if (a.block_bytes < 1) return invalid_argument("expected --block-bytes N, as the blocks were put");
  const StoreLookup found = store.lookup(chain.scope, chain.keys, a.exact);
  std::vector<uint8_t> bytes(static_cast<size_t>(found.num_blocks * a.block_bytes));
  const StoreGet got = store.get({.scope = chain.scope,
                                  .keys = chain.keys,
                                  .blocks = {0, found.num_blocks},
                                  .block_bytes = a.block_bytes,
                                  .exact_only = a.exact,
                                  .tokens = chain.tokens},
                                 bytes);
  bytes.resize(static_cast<size_t>(got.num_blocks * a.block_bytes));
  TRY(write_file_atomically(a.output, bytes));
  const bool all = found.num_blocks == got.num_blocks;
  fmt::print(stderr, "{} of {} blocks, {}\n", got.num_blocks, chain.keys.size(),
             all ? to_string(found.reason) : to_string(got.reason));
  return {};
}

// Beyond their time, or no longer.
Status pin(const StoreArguments& a, BlockStore& store) {
  ASSIGN_OR_RETURN(const Chain chain, chain_of(a, store));
  if (a.action == "unpin") store.unpin(chain.keys);
  else if (!store.pin(chain.keys)) return resource_exhausted("too much is pinned already");
  return print_json(
      Json::Object{{"blocks", static_cast<int64_t>(chain.keys.size())}, {"pinned_in_all", store.stats().num_pins}});
}

Status scrub(const StoreArguments& a, BlockStore& store) {
  std::unique_ptr<Progress> progress;
  const ScrubReport report = store.scrub([&](int64_t done, int64_t all) {
    if (!progress) progress = std::make_unique<Progress>("scrub", all);
    progress->advance_to(done);
    return !interrupted();
  });
  progress.reset();
  const Json json = scrub_json(report);
  if (a.json) TRY(print_json(json));
  else fmt::print("{}", readable(json));
  if (report.num_lost_extents > 0)
    return corruption(
        fmt::format("{} extents cannot be read any more; they are misses from now on", report.num_lost_extents));
  return {};
}

Status stat(const StoreArguments& a, BlockStore& store) {
  const Json json = store_json(store);
  if (a.json) return print_json(json);
  fmt::print("{}", readable(json));
  return {};
}

Status forget(const StoreArguments& a, BlockStore& store) {
  ASSIGN_OR_RETURN(StoreTenants tenants, tenants_of(a));
  ASSIGN_OR_RETURN(const std::optional<std::string> salt, tenants.drop(a.tenant));
  if (!salt) return not_found(fmt::format("no tenant '{}' here", a.tenant));
  store.forget_tenant(scope_tags({.tenant_salt = *salt}));
  fmt::print(stderr, "the salt of '{}' is gone: its data cannot be found any more and leaves the disks with its time\n",
             a.tenant);
  return {};
}

struct BenchFigures {
  std::vector<double> read_ms;
  int64_t num_failed = 0;
  double write_s = 0;
};

int64_t bench_block_bytes(const StoreArguments& a) { return a.block_bytes > 0 ? a.block_bytes : kBenchBlockBytes; }

// Writes some extents, then reads them at random until the time is over.
BenchFigures measure(const StoreArguments& a, BlockStore& store, const std::vector<BlockKey>& keys,
                     const std::vector<uint8_t>& bytes) {
  const int64_t block_bytes = bench_block_bytes(a);
  const SystemClock clock;
  BenchFigures figures;
  const StoreScope scope = store.scope({.tenant_salt = "bench"});
  const int64_t begin_ns = clock.monotonic_ns();
  store.put({.scope = scope, .ttl_class = TtlClass::kTail, .keys = keys, .block_bytes = block_bytes, .bytes = bytes});
  store.flush();
  figures.write_s = static_cast<double>(clock.monotonic_ns() - begin_ns) * 1e-9;
  const int64_t end_ns = clock.monotonic_ns() + a.seconds * kSecondNs;
  std::vector<uint8_t> out(static_cast<size_t>(kExtentBlocks * block_bytes));
  Rng rng(1);
  while (clock.monotonic_ns() < end_ns && !interrupted()) {
    const auto at = static_cast<int64_t>(rng.below(keys.size() / kExtentBlocks)) * kExtentBlocks;
    const int64_t read_ns = clock.monotonic_ns();
    const StoreGet got =
        store.get({.scope = scope, .keys = keys, .blocks = {at, at + kExtentBlocks}, .block_bytes = block_bytes}, out);
    figures.read_ms.push_back(static_cast<double>(clock.monotonic_ns() - read_ns) * 1e-6);
    figures.num_failed +=
        got.num_blocks != kExtentBlocks || !std::equal(out.begin(), out.end(), bytes.begin() + at * block_bytes);
  }
  std::sort(figures.read_ms.begin(), figures.read_ms.end());
  return figures;
}

Status bench(const StoreArguments& a, BlockStore& store) {
  constexpr int64_t kExtents = 16;
  Rng rng(static_cast<uint64_t>(SystemClock().unix_ns()));  // other keys than the last run's
  std::vector<BlockKey> keys;
  for (int64_t i = 0; i < kExtents * kExtentBlocks; ++i) keys.push_back({rng.next_u64(), rng.next_u64()});
  std::vector<uint8_t> bytes(keys.size() * static_cast<size_t>(bench_block_bytes(a)));
  for (size_t i = 0; i < bytes.size(); i += 61) bytes[i] = static_cast<uint8_t>(rng.next_u32());
  const BenchFigures figures = measure(a, store, keys, bytes);
  if (figures.read_ms.empty()) return unavailable("nothing was read");
  const auto at = [&](double share) {
    return figures.read_ms[static_cast<size_t>(share * static_cast<double>(figures.read_ms.size() - 1))];
  };
  const double read_s = std::accumulate(figures.read_ms.begin(), figures.read_ms.end(), 0.0) * 1e-3;
  const double extent_mb = static_cast<double>(kExtentBlocks * bench_block_bytes(a)) * 1e-6;
  TRY(print_json(Json::Object{{"reads", static_cast<int64_t>(figures.read_ms.size())},
                              {"failed", figures.num_failed},
                              {"p50_ms", at(0.5)},
                              {"p99_ms", at(0.99)},
                              {"p999_ms", at(0.999)},
                              {"max_ms", figures.read_ms.back()},
                              {"read_mb_s", extent_mb * static_cast<double>(figures.read_ms.size()) / read_s},
                              {"write_mb_s", extent_mb * kExtents / figures.write_s}}));
  if (figures.num_failed > 0) return unavailable(fmt::format("{} reads failed", figures.num_failed));
  return {};
}

Status run_checks(const OpenDevices& open, const Clock& clock) {
  for (const ConformanceCheck& item : conformance_checks()) {
    TRY(item.run(open, clock).prefixed(item.name));
    fmt::print("ok {}\n", item.name);
  }
  return {};
}

Status drop_everything(const OpenDevices& open) {
  ASSIGN_OR_RETURN(const auto devices, open());
  for (const auto& device : devices) {
    ASSIGN_OR_RETURN(const auto files, device->list());
    for (const SegmentFile& file : files) TRY(device->drop(file.id));
  }
  return {};
}

// Runs the conformance suite on devices that hold nothing yet, and leaves them so.
Status check(const StoreArguments& a) {
  const SystemClock clock;
  FrameLoop loop;
  StoreTarget target = a.target;
  ASSIGN_OR_RETURN(target.security, security_of(a));
  const OpenDevices open = [&] { return open_devices(target, loop, clock); };
  {
    ASSIGN_OR_RETURN(const auto devices, open());
    for (const auto& device : devices) {
      ASSIGN_OR_RETURN(const auto files, device->list());
      if (!files.empty()) return invalid_argument(device->name() + " is not empty: check writes and drops segments");
    }
  }
  const Status checked = run_checks(open, clock);
  const Status emptied = drop_everything(open);
  return checked.ok() ? emptied : checked;
}

// What a shard server says of itself in etcd, as long as it may.
class Registration {
 public:
  // Nothing to say without --etcd. Errors: as register_shard().
  Status begin(const StoreArguments& a, int port) {
    if (a.target.etcd.empty()) return {};
    ASSIGN_OR_RETURN(const MemberPlace place, parse_member_place(a.target.etcd));
    ASSIGN_OR_RETURN(table_, make_etcd_leases(place.address));
    const std::string address = fmt::format("{}:{}", a.advertised.empty() ? a.host : a.advertised, port);
    const std::string name = a.name.empty() ? address : a.name;
    ASSIGN_OR_RETURN(lease_, register_shard(*table_, place.store, name, address, clock_));
    fmt::print(stderr, "registered as {} of store {} at etcd {}\n", name, place.store, place.address);
    valid_ = lease_.get();
    return {};
  }
  ~Registration() { valid_ = nullptr; }
  bool may_write() const {
    const HeldLease* const lease = valid_;
    return lease && lease->is_valid();
  }

 private:
  const SystemClock clock_;
  std::unique_ptr<LeaseTable> table_;
  std::unique_ptr<HeldLease> lease_;
  std::atomic<const HeldLease*> valid_{nullptr};
};

Status check_serve(const StoreArguments& a, const FrameSecurity& security) {
  if (a.target.paths.empty() || split_list(a.target.paths).size() != 1)
    return invalid_argument("store serve: expected --path with one directory; run one server a directory");
  const bool is_local = a.host == "127.0.0.1" || a.host == "localhost" || a.host == "::1";
  if (!is_local && security.secret.empty() && !security.has_tls())
    return invalid_argument(
        "beyond this machine a shard server needs --secret FILE or --tls-cert, --tls-key, --tls-ca");
  if (!a.target.etcd.empty() && a.advertised.empty() && (a.host == "0.0.0.0" || a.host == "::"))
    return invalid_argument("--etcd with --host " + a.host + ": --advertise ADDRESS says where clients find this one");
  return {};
}

Status serve(const StoreArguments& a, StopSignals& signals) {
  ShardServerOptions options{.host = a.host, .port = static_cast<int>(a.port)};
  options.num_threads = static_cast<int>(a.num_threads);
  ASSIGN_OR_RETURN(options.security, security_of(a));
  TRY(check_serve(a, options.security));
  ASSIGN_OR_RETURN(auto device, open_dir({.path = a.target.paths,
                                          .direct = a.target.direct,
                                          .io_uring = a.target.io_uring,
                                          .durable = a.target.durable}));
  const DirTraits traits = dir_traits(*device);
  auto registration = std::make_shared<Registration>();
  if (!a.target.etcd.empty()) options.may_write = [registration] { return registration->may_write(); };
  ASSIGN_OR_RETURN(const auto server, ShardServer::start(options, std::move(device)));
  TRY(registration->begin(a, server->port()));
  fmt::print(stderr, "serving {} ({}, {})\n", a.target.paths, traits.io_uring ? "io_uring" : "threads",
             traits.direct ? "O_DIRECT" : "page cache");
  fmt::print("ready {}:{}\n", a.host, server->port());
  std::fflush(stdout);
  while (!signals.wait(1000)) {}
  const ShardServerCounts counts = server->counts();
  fmt::print(stderr, "stopped after {} reads, {} writes, {} failures\n", counts.num_reads, counts.num_writes,
             counts.num_failures);
  return {};
}

using Action = Status (*)(const StoreArguments&, BlockStore&);

Status run_opened(const StoreArguments& a, Action action) {
  install_interrupt_handler();
  ASSIGN_OR_RETURN(const auto opened, open(a));
  return action(a, *opened->store);
}

// The exit status.
int run(const StoreArguments& a) {
  static constexpr std::pair<const char*, Action> kActions[] = {{"put", put},   {"get", get},     {"lookup", lookup},
                                                                {"stat", stat}, {"scrub", scrub}, {"forget", forget},
                                                                {"pin", pin},   {"unpin", pin},   {"bench", bench}};
  if (a.action == "check") return exit_status(check(a));
  for (const auto& [name, action] : kActions)
    if (a.action == name) return exit_status(run_opened(a, action));
  fmt::print(stderr, "deepinfer store: expected {}, found \"{}\"\n", kActionNames, a.action);
  return 2;
}

void declare(OptionSet& options, StoreArguments& a) {
  options.positional("ACTION", a.action, kActionNames);
  options.add("--path", a.target.paths,
              "DIR or twelve and more, with commas: one is kept plain, twelve are coded 10 + 2");
  options.add("--shards", a.target.shards, "HOST:PORT of twelve and more shard servers, with commas");
  options.add("--rados", a.target.rados, "CONF:POOLPREFIX of a Ceph cluster with pools POOLPREFIX0, POOLPREFIX1, ...");
  options.add("--etcd", a.target.etcd,
              "HOST:PORT[/STORE] of an etcd server: serve registers itself there, others find the servers there");
  options.add("--secret", a.secret_file, "file with the secret that servers and clients share");
  options.add("--tls-cert", a.target.security.tls_certificate, "PEM file: own certificate");
  options.add("--tls-key", a.target.security.tls_key, "PEM file: its key");
  options.add("--tls-ca", a.target.security.tls_authority, "PEM file: who signs the other side's certificate");
  options.add("--encryption-key", a.key_file, "file with 64 hex digits: encrypt blocks on the devices");
  options.add("--tenants", a.tenants_file, "file with the tenants' salts (default: tenants.json in the first --path)");
  options.add("--tenant", a.tenant, "whose data (default \"default\")");
  options.add("--revision", a.revision, "revision of the model that made the blocks (default none)");
  options.add("--format", a.format, {0, UINT32_MAX}, "version of the blocks' byte layout (default 1)");
  options.choice("--class", a.ttl_class, {"agent", "chat", "tail"},
                 "lifetime: 3 days, 7 days, 30 minutes (default chat)");
  options.add("--ids", a.ids, "file with a JSON array of token ids from the sequence's start on");
  options.add("--payload", a.payload, "put: file with the blocks' bytes, one behind the other");
  options.add("--first-block", a.first_block, {0, 1 << 24},
              "put: block of the sequence the payload begins with (default 0)");
  options.add("--block-bytes", a.block_bytes, {0, kBlockBytesMax},
              "bytes of a block; put: 0 = payload over blocks (default); bench: 0 = Flash's");
  options.add("--output", a.output, "get: file for the bytes (default -, standard output)");
  options.flag("--exact", a.exact, "lookup, get: without blocks computed behind a fast replay");
  options.add("--capacity-gb", a.capacity_gb, {0, 1 << 30},
              "bytes kept on all devices, in GB; 0 = as much as fits (default)");
  options.add("--seconds", a.seconds, {1, 86'400}, "bench: how long to read, in seconds (default 5)");
  options.add("--host", a.host, "serve: IP address to listen on (default 127.0.0.1)");
  options.add("--port", a.port, {0, 65535}, "serve: TCP port; 0 = any free one (default 7420)");
  options.add("--name", a.name, "serve: the shard's name in --etcd, which outlives its address (default HOST:PORT)");
  options.add("--advertise", a.advertised, "serve: IP address that --etcd tells others (default --host)");
  options.add("--threads", a.num_threads, {1, 64}, "serve: event threads (default 1)");
  options.flag("--durable", a.target.durable, "a write counts once the disk has it, not the kernel");
  options.flag("--no-direct", a.no_direct, "use the page cache");
  options.flag("--no-uring", a.no_uring, "use threads instead of io_uring");
  options.flag("--json", a.json, "stat, scrub: machine-readable");
}

}  // namespace

Command store_command() {
  const auto arguments = std::make_shared<StoreArguments>();
  return {
      .name = "store",
      .summary = "the KV store by hand, and its shard servers (docs/store.md)",
      .examples =
          "  deepinfer store put    --path /var/kv --ids prompt.json --payload blocks.bin   keep the blocks of these "
          "tokens\n"
          "  deepinfer store lookup --path /var/kv --ids prompt.json                        how many are there, and "
          "why no more\n"
          "  deepinfer store get    --path /var/kv --ids prompt.json --block-bytes 113920 --output blocks.bin\n"
          "  deepinfer store pin    --path /var/kv --ids prompt.json                        keep them beyond their "
          "time\n"
          "  deepinfer store stat   --path /var/kv                                          what it holds, its shards' "
          "health\n"
          "  deepinfer store scrub  --path /var/kv                                          read and mend everything\n"
          "  deepinfer store forget --path /var/kv --tenant alice                           delete a tenant's data\n"
          "  deepinfer store bench  --path /tmp/kv --seconds 10                             how fast it reads and "
          "writes\n"
          "  deepinfer store serve  --path /mnt/nvme0 --host 10.0.0.5 --secret FILE         one shard of a larger "
          "store\n",
      .declare = [arguments](OptionSet& options) { declare(options, *arguments); },
      .run =
          [arguments] {
            arguments->target.direct = !arguments->no_direct;
            arguments->target.io_uring = !arguments->no_uring;
            if (arguments->action != "serve") return run(*arguments);
            StopSignals signals;
            const Status status = serve(*arguments, signals);
            if (status.ok() && signals.signal() == 2) return 130;
            return exit_status(status);
          }};
}

}  // namespace deepinfer
