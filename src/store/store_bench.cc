// SPDX-License-Identifier: MIT
// The store's costs: coding and checksums a core, lookups in a large index, restart, reads and writes of a directory
// beside fio with the same pattern, and hedged reads from twelve shard servers, one of them stopped. Setting: --set
// dir=FOLDER for the disk (default: the system's temporary folder), --set part=coding (or index, restart, disk,
// shards).
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "base/bench.h"
#include "base/clock.h"
#include "base/crc32c.h"
#include "base/json.h"
#include "base/philox.h"
#include "store/block_store.h"
#include "store/bulk_crc32c.h"
#include "store/driver_dir.h"
#include "store/driver_shard.h"
#include "store/store_recovery.h"

namespace deepinfer {
namespace {

constexpr int64_t kFlashBlock = 113'920;
constexpr int64_t kRow = 368'640;

double cpu_seconds(const std::function<void()>& body) {
  const int64_t begin = thread_cpu_ns();
  body();
  return static_cast<double>(thread_cpu_ns() - begin) * 1e-9;
}

double best_seconds(int num_runs, const std::function<void()>& body) {
  double best = cpu_seconds(body);
  for (int i = 0; i < num_runs; ++i) best = std::min(best, cpu_seconds(body));
  return best;
}

Status bench_coding(const BenchOptions&, BenchReport& report) {
  const double triad = measure_triad_bytes_per_second() * 1e-9;
  const ErasureCode code(10, 2);
  for (const int64_t object : {int64_t{256} << 10, int64_t{1} << 20, 32 * kFlashBlock}) {
    const int64_t shard = round_up(ceil_div<int64_t>(object, 10), int64_t{64});
    std::vector<std::vector<uint8_t>> shards(12, std::vector<uint8_t>(static_cast<size_t>(shard), 7));
    std::vector<const uint8_t*> data, sources;
    std::vector<uint8_t*> parity;
    for (size_t i = 0; i < 12; ++i) {
      if (i < 10) data.push_back(shards[i].data());
      else parity.push_back(shards[i].data());
      if (i >= 2) sources.push_back(shards[i].data());
    }
    const int runs = static_cast<int>((int64_t{256} << 20) / object);
    const auto add = [&](const char* what, double seconds, const char* goal) {
      report.add({.name = fmt::format("{} of {} KiB", what, object >> 10),
                  .value = static_cast<double>(object) / seconds * 1e-9,
                  .unit = "GB/s",
                  .ceiling = triad,
                  .ceiling_name = "triad",
                  .note = goal});
    };
    const auto encode = [&] {
      for (int i = 0; i < runs; ++i) code.encode(data, parity, shard);
    };
    add("encode 10+2", best_seconds(3, encode) / runs, "goal 60 GB/s");
    std::vector<uint8_t> first(static_cast<size_t>(shard)), second(first);
    uint8_t* const out[] = {first.data(), second.data()};
    const auto decode = [&] {
      for (int i = 0; i < runs; ++i) code.rebuild(0xffc, sources, 0, out, shard);
    };
    add("decode two lost shards", best_seconds(3, decode) / runs, "goal 47 GB/s");
  }
  std::vector<uint8_t> bytes(static_cast<size_t>(32 * kFlashBlock), 3);
  uint32_t sink = 0;
  const double bulk = best_seconds(20, [&] { sink += bulk_crc32c(bytes); });
  const double plain = best_seconds(20, [&] { sink += crc32c(bytes); });
  report.add({.name = "crc32c of an extent",
              .value = static_cast<double>(bytes.size()) / bulk * 1e-9,
              .unit = "GB/s",
              .ceiling = triad,
              .ceiling_name = "triad",
              .peer = BenchPeer{"base/crc32c", static_cast<double>(bytes.size()) / plain * 1e-9},
              .note = sink ? "" : " "});
  return {};
}

int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

BlockKey key_at(uint64_t chain, uint64_t block) {
  const auto bits = philox({static_cast<uint32_t>(chain), static_cast<uint32_t>(chain >> 32)},
                           {static_cast<uint32_t>(block), 0, 0, 0});
  return {bits[0] | uint64_t{bits[1]} << 32, bits[2] | uint64_t{bits[3]} << 32};
}

ExtentRecord record_at(uint64_t chain, uint64_t cell, uint64_t number) {
  ExtentRecord record{.key = key_at(chain, cell * kExtentBlocks),
                      .segment = SegmentId{(uint64_t{1} << 40) + number / 2900},
                      .offset_pages = static_cast<uint32_t>(1 + number % 2900 * 90),
                      .block_bytes = kFlashBlock,
                      .num_blocks = kExtentBlocks};
  for (uint64_t b = 0; b < kExtentBlocks; ++b)
    record.fingerprints[b] = fingerprint_of(key_at(chain, cell * kExtentBlocks + b));
  return record;
}

// Chains of 12 extents (49 k tokens), as a mean hit is (serving.md 9.11).
Status bench_index(const BenchOptions& options, BenchReport& report) {
  constexpr uint64_t kCells = 12;
  const int64_t num_extents = options.quick ? 31'250 : 312'500;  // 10 M blocks
  const int64_t before = resident_bytes();
  ExtentIndex index;
  const auto fill = [&] {
    for (int64_t n = 0; n < num_extents; ++n) {
      const auto number = static_cast<uint64_t>(n);
      index.insert(record_at(number / kCells, number % kCells, number));
    }
  };
  const double insert_s = cpu_seconds(fill);
  const double per_million = static_cast<double>(resident_bytes() - before) / static_cast<double>(num_extents);
  report.add({.name = fmt::format("RSS a million extents, index of {} M blocks", num_extents * 32 / 1'000'000),
              .value = per_million,
              .unit = "MB",
              .ceiling = 104,
              .ceiling_name = "bytes an entry in serving.md 9.6",
              .note = fmt::format("{:.2f} M inserts/s", static_cast<double>(num_extents) / insert_s * 1e-6)});
  const auto num_chains = static_cast<uint64_t>(num_extents) / kCells;
  constexpr int kChains = 4096;
  std::vector<std::vector<BlockKey>> chains(kChains);
  Rng rng(1);
  for (auto& chain : chains) {
    const uint64_t number = rng.below(num_chains);
    for (uint64_t b = 0; b < kCells * kExtentBlocks; ++b) chain.push_back(key_at(number, b));
  }
  int64_t found = 0;
  const auto lookups_of = [&](size_t num_blocks) {
    const double seconds = best_seconds(3, [&] {
      for (const auto& chain : chains) found += index.prefix_blocks(std::span(chain).first(num_blocks), false);
    });
    return kChains / seconds * 1e-6;
  };
  const double one = lookups_of(32), all = lookups_of(kCells * 32);
  report.add({.name = "lookups of one extent (32 blocks)", .value = one, .unit = "M/s", .note = "goal 1 M/s"});
  report.add({.name = "lookups of a 49 k-token prefix (12 extents)",
              .value = all,
              .unit = "M/s",
              .note = fmt::format("{:.1f} M extents/s; every key compared", all * kCells)});
  CHECK(found > 0);
  return {};
}

std::string folder_of(const BenchOptions& options) {
  const auto at = options.extra.find("dir");
  const std::string base = at == options.extra.end() ? std::filesystem::temp_directory_path().string() : at->second;
  return base + "/deepinfer_store_bench_" + std::to_string(::getpid());
}

// Opening a store of a million extents: by its checkpoint, and by the footers of 345 segments.
Status bench_restart(const BenchOptions& options, BenchReport& report) {
  const std::string root = folder_of(options) + "_restart";
  const uint64_t num_extents = options.quick ? 100'000 : 1'000'000;
  const SystemClock clock;
  const int64_t bucket = TtlPolicy().bucket_of(clock.unix_ns());
  {
    ASSIGN_OR_RETURN(const auto device, open_dir({.path = root}));
    for (uint64_t first = 0; first < num_extents; first += 2900) {
      std::vector<FooterExtent> footer;
      for (uint64_t n = first; n < std::min(first + 2900, num_extents); ++n)
        footer.push_back({record_at(n / 12, n % 12, n), std::vector<uint32_t>(32)});
      const SegmentId id = footer.front().record.segment;
      PageBuffer head = PageBuffer::of(kPageBytes);
      encode_segment_head({.id = id, .bucket = bucket, .writer = 1}, head.bytes(0, kPageBytes));
      TRY(write_now(*device, id, 0, std::move(head), kPageBytes));
      const int64_t end = kPageBytes + 2900 * 90 * kPageBytes;
      const auto bytes = encode_footer(id, static_cast<uint64_t>(end), footer);
      PageBuffer buffer = PageBuffer::of(static_cast<int64_t>(bytes.size()));
      std::memcpy(buffer.data(), bytes.data(), bytes.size());
      TRY(write_now(*device, id, end, std::move(buffer), static_cast<int64_t>(bytes.size())));
    }
  }
  for (const char* how : {"footers", "checkpoint"}) {
    ASSIGN_OR_RETURN(auto device, open_dir({.path = root}));
    std::vector<std::unique_ptr<ShardDevice>> devices;
    devices.push_back(std::move(device));
    const int64_t begin = clock.monotonic_ns();
    const int64_t cpu = thread_cpu_ns();
    ASSIGN_OR_RETURN(const auto store, BlockStore::open({}, std::move(devices), clock));
    report.add(
        {.name = fmt::format("restart with {} extents by {}", store->recovery().num_extents, how),
         .value = static_cast<double>(clock.monotonic_ns() - begin) * 1e-9,
         .unit = "s",
         .note = fmt::format("{:.2f} s of CPU; goal under 5 s", static_cast<double>(thread_cpu_ns() - cpu) * 1e-9)});
  }
  std::filesystem::remove_all(root);
  return {};
}

// GB/s of fio with our pattern: rows of 368,640 bytes, 16 under way, O_DIRECT; 0 when fio is not installed.
double fio_gbps(const std::string& folder, bool is_write, int64_t num_bytes) {
  const std::string command = fmt::format(
      "fio --name=row --directory={} --rw={} --bs={} --size={} --direct=1 --ioengine=io_uring --iodepth=16 "
      "--end_fsync=0 --output-format=json 2>/dev/null",
      folder, is_write ? "write" : "read", kRow, num_bytes / kRow * kRow);
  FILE* const pipe = ::popen(command.c_str(), "r");
  if (!pipe) return 0;
  std::string text;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, n);
  ::pclose(pipe);
  const size_t start = text.find('{');
  if (start == std::string::npos) return 0;
  const auto json = parse_json(std::string_view(text).substr(start));
  const Json* const jobs = json.ok() ? json.value().find("jobs") : nullptr;
  if (!jobs || !jobs->is_array() || jobs->as_array().empty()) return 0;
  const Json* const side = jobs->as_array()[0].find(is_write ? "write" : "read");
  const Json* const rate = side ? side->find("bw_bytes") : nullptr;
  return rate && rate->is_number() ? rate->as_double() * 1e-9 : 0;
}

// The same rows through the dir driver, 16 under way.
Result<double> rows_gbps(ShardDevice& device, bool is_write, int64_t num_bytes, const Clock& clock) {
  const SegmentId segment{uint64_t{9} << 40};
  const int64_t num_rows = num_bytes / kRow;
  std::mutex mutex;
  std::condition_variable changed;
  int64_t num_running = 0, num_done = 0;
  Status failed;
  const int64_t begin = clock.monotonic_ns();
  for (int64_t row = 0; row < num_rows; ++row) {
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return num_running < 16; });
      ++num_running;
    }
    const auto done = [&](DeviceReply reply) {
      const std::lock_guard lock(mutex);
      --num_running;
      ++num_done;
      if (!reply.status.ok()) failed = reply.status;
      changed.notify_one();
    };
    PageBuffer buffer = PageBuffer::of(kRow);
    if (is_write) device.write(segment, row * kRow, std::move(buffer), kRow, done);
    else device.read(segment, row * kRow, kRow, std::move(buffer), done);
  }
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return num_done == num_rows; });
  TRY(failed);
  return static_cast<double>(num_rows * kRow) / static_cast<double>(clock.monotonic_ns() - begin);
}

Status bench_disk(const BenchOptions& options, BenchReport& report) {
  const std::string root = folder_of(options) + "_disk";
  const int64_t num_bytes = options.quick ? int64_t{64} << 20 : int64_t{1} << 30;
  const SystemClock clock;
  ASSIGN_OR_RETURN(const auto device, open_dir({.path = root}));
  const DirTraits traits = dir_traits(*device);
  for (const bool is_write : {true, false}) {
    double fio = 0, own = 0;
    for (int round = 0; round < 3; ++round) {  // in turn: the disk is shared with others
      fio = std::max(fio, fio_gbps(root, is_write, num_bytes));
      ASSIGN_OR_RETURN(const double rate, rows_gbps(*device, is_write, num_bytes, clock));
      own = std::max(own, rate);
    }
    report.add(
        {.name = is_write ? "rows written to a directory" : "rows read from a directory",
         .value = own,
         .unit = "GB/s",
         .ceiling = fio,
         .ceiling_name = "fio",
         .note = fmt::format("{}, {}; 368,640-byte rows, 16 under way; best of 3; goal 90 %",
                             traits.io_uring ? "io_uring" : "threads", traits.direct ? "O_DIRECT" : "page cache")});
  }
  std::filesystem::remove_all(root);
  return {};
}

// `deepinfer store serve` as its own process.
struct ServerProcess {
  pid_t pid = 0;
  std::string address;
};

Result<ServerProcess> start_server(const std::string& folder, bool direct) {
  int ends[2];
  if (::pipe(ends) != 0) return unavailable("pipe");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", 1, 0);
  std::string program = std::filesystem::read_symlink("/proc/self/exe"), path = folder;
  std::vector<std::string> words = {program, "store", "serve", "--path", path, "--port", "0"};
  if (!direct) words.push_back("--no-direct");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ServerProcess server;
  const int error = ::posix_spawn(&server.pid, program.c_str(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (error != 0) return unavailable(program + ": cannot be started");
  char c = 0;
  std::string line;
  while (::read(ends[0], &c, 1) == 1 && c != '\n') line += c;
  ::close(ends[0]);
  if (!line.starts_with("ready ")) return unavailable("store serve did not become ready: " + line);
  server.address = line.substr(6);
  return server;
}

struct Latencies {
  std::vector<double> ms;
  int64_t num_failed = 0;
  double at(double share) {
    std::sort(ms.begin(), ms.end());
    return ms.empty() ? 0 : ms[std::min(ms.size() - 1, static_cast<size_t>(share * static_cast<double>(ms.size())))];
  }
};

// Direct: each read waits for the disk, and 1.1 MiB of it; else for the page cache, as the prototype of
// serving.md 9.10.
class ShardBench {
 public:
  explicit ShardBench(bool direct) : direct_(direct) {}
  Status run(const BenchOptions& options, BenchReport& report) {
    const std::string root = folder_of(options) + "_shards";
    const Status status = measure(root, options, report);
    store_.reset();
    for (const ServerProcess& server : servers_) {
      ::kill(server.pid, SIGKILL);
      ::waitpid(server.pid, nullptr, 0);
    }
    std::filesystem::remove_all(root);
    return status;
  }

 private:
  Status measure(const std::string& root, const BenchOptions& options, BenchReport& report) {
    std::vector<std::unique_ptr<ShardDevice>> devices;
    for (int i = 0; i < 12; ++i) {
      ASSIGN_OR_RETURN(ServerProcess server, start_server(fmt::format("{}/{}", root, i), direct_));
      servers_.push_back(server);
      ASSIGN_OR_RETURN(const ShardOptions shard, parse_shard_address(server.address));
      ASSIGN_OR_RETURN(auto device, open_shard(loop_, shard));
      devices.push_back(std::move(device));
    }
    StoreOptions store_options;
    store_options.num_data_shards = 10;
    store_options.num_parity_shards = 2;
    ASSIGN_OR_RETURN(store_, BlockStore::open(store_options, std::move(devices), clock_));
    fill();
    const int64_t num_reads = options.quick ? 200 : 3000;
    Latencies healthy = read(num_reads);
    const std::string where = direct_ ? " (O_DIRECT)" : " (page cache)";
    add(report, "1 MiB read, 12 shard servers on loopback" + where, healthy, 0);
    ::kill(servers_[5].pid, SIGSTOP);
    Latencies stalled = read(num_reads);
    add(report, "1 MiB read, one server stopped" + where, stalled, healthy.at(0.99));
    ::kill(servers_[5].pid, SIGCONT);
    ::kill(servers_[2].pid, SIGKILL);
    Latencies killed = read(num_reads);
    add(report, "1 MiB read, another killed" + where, killed, healthy.at(0.99));
    return {};
  }

  void fill() {
    Rng rng(1);
    for (int64_t i = 0; i < kExtents * kBlocks; ++i) keys_.push_back({rng.next_u64(), rng.next_u64()});
    bytes_.resize(keys_.size() * static_cast<size_t>(kBlock));
    for (size_t i = 0; i < bytes_.size(); i += 61) bytes_[i] = static_cast<uint8_t>(rng.next_u32());
    store_->put({.scope = store_->scope({}), .keys = keys_, .block_bytes = kBlock, .bytes = bytes_});
    store_->flush();
  }

  Latencies read(int64_t num_reads) {
    Latencies latencies;
    std::vector<uint8_t> out(static_cast<size_t>(kBlocks * kBlock));
    Rng rng(7);
    for (int64_t i = 0; i < num_reads; ++i) {
      const auto begin = static_cast<int64_t>(rng.below(kExtents)) * kBlocks;
      const int64_t start = clock_.monotonic_ns();
      const StoreGet got = store_->get(
          {.scope = store_->scope({}), .keys = keys_, .blocks = {begin, begin + kBlocks}, .block_bytes = kBlock}, out);
      latencies.ms.push_back(static_cast<double>(clock_.monotonic_ns() - start) * 1e-6);
      const bool right =
          got.num_blocks == kBlocks && std::memcmp(out.data(), bytes_.data() + begin * kBlock, out.size()) == 0;
      latencies.num_failed += !right;
    }
    return latencies;
  }

  static void add(BenchReport& report, const std::string& name, Latencies& l, double healthy_p99) {
    const double seconds = std::accumulate(l.ms.begin(), l.ms.end(), 0.0) * 1e-3;
    report.add({.name = name,
                .value = l.at(0.5),
                .unit = "ms p50",
                .note = fmt::format(
                    "p99 {:.2f} ms{}, p99.9 {:.2f} ms, {:.0f} MB/s, {} of {} failed", l.at(0.99),
                    healthy_p99 > 0 ? fmt::format(" ({:.1f}x healthy)", l.at(0.99) / healthy_p99) : "", l.at(0.999),
                    static_cast<double>(kBlocks * kBlock) * 1e-6 * static_cast<double>(l.ms.size()) / seconds,
                    l.num_failed, l.ms.size())});
  }

  static constexpr int64_t kBlocks = 32, kBlock = 32'768, kExtents = 16;
  const bool direct_;
  const SystemClock clock_;
  FrameLoop loop_;
  std::vector<ServerProcess> servers_;
  std::unique_ptr<BlockStore> store_;
  std::vector<BlockKey> keys_;
  std::vector<uint8_t> bytes_;
};

Status bench_shards(const BenchOptions& options, BenchReport& report) {
  TRY(ShardBench(false).run(options, report));
  return ShardBench(true).run(options, report);
}

}  // namespace

Status bench_store(const BenchOptions& options, BenchReport& report) {
  using Part = Status (*)(const BenchOptions&, BenchReport&);
  constexpr std::pair<const char*, Part> kParts[] = {{"coding", bench_coding},
                                                     {"index", bench_index},
                                                     {"restart", bench_restart},
                                                     {"disk", bench_disk},
                                                     {"shards", bench_shards}};
  const auto wanted = options.extra.find("part");
  bool is_known = wanted == options.extra.end();
  for (const auto& [name, run] : kParts) {
    if (wanted != options.extra.end() && wanted->second != name) continue;
    is_known = true;
    TRY(run(options, report));
  }
  return is_known ? Status() : invalid_argument("part: expected coding, index, restart, disk, shards");
}

}  // namespace deepinfer
