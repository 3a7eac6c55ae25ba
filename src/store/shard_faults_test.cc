// SPDX-License-Identifier: MIT
// Twelve shard servers, each a process of its own, read under load while one or two of them are stopped (SIGSTOP) or
// killed. No read may fail, whoever it is.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/philox.h"
#include "store/block_store.h"
#include "store/driver_dir.h"
#include "store/driver_shard.h"
#include "store/shard_server.h"

namespace deepinfer {
namespace {

constexpr int64_t kBlock = 113'920, kBlocks = 32, kExtents = 4;
const KeyScope kScope{.tenant_salt = "faults", .model_revision = "m"};

struct ServerProcess {
  pid_t pid = 0;
  int port = 0;
};

// Forked before this process has any thread.
ServerProcess start_server(const std::string& path) {
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    auto device = open_dir({.path = path});
    if (!device.ok()) _exit(3);
    auto server = ShardServer::start({}, std::move(device).value());
    if (!server.ok()) _exit(4);
    const int port = server.value()->port();
    if (::write(ends[1], &port, sizeof port) != sizeof port) _exit(5);
    for (;;) ::pause();
  }
  ::close(ends[1]);
  ServerProcess process{child, 0};
  EXPECT_EQ(::read(ends[0], &process.port, sizeof process.port), static_cast<ssize_t>(sizeof process.port));
  ::close(ends[0]);
  return process;
}

class ShardFaults : public testing::Test {
 protected:
  ShardFaults() {
    root_ = std::filesystem::temp_directory_path() / ("deepinfer_shards_" + std::to_string(::getpid()));
    std::filesystem::remove_all(root_);
    for (int i = 0; i < 12; ++i) servers_.push_back(start_server(root_ / std::to_string(i)));
    loop_ = std::make_unique<FrameLoop>();
    std::vector<std::unique_ptr<ShardDevice>> devices;
    for (const ServerProcess& server : servers_)
      devices.push_back(std::move(open_shard(*loop_, {.host = "127.0.0.1", .port = server.port})).value());
    StoreOptions options;
    options.num_data_shards = 10;
    options.num_parity_shards = 2;
    options.min_acks = 12;  // the tests take shards away as soon as the extents are there
    options.read_timeout_ns = options.write_timeout_ns = 60 * kSecondNs;  // a slow machine is no failing shard
    auto opened = BlockStore::open(options, std::move(devices), clock_);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    store_ = std::move(opened).value();
    fill();
  }
  ~ShardFaults() override {
    for (const ServerProcess& server : servers_) ::kill(server.pid, SIGCONT);
    store_.reset();
    for (const ServerProcess& server : servers_) {
      ::kill(server.pid, SIGKILL);
      ::waitpid(server.pid, nullptr, 0);
    }
    loop_.reset();
    std::filesystem::remove_all(root_);
  }

  void fill() {
    std::vector<TokenId> tokens;
    for (TokenId i = 0; i < kExtents * kBlocks * kBlockKeyTokens; ++i) tokens.push_back(i % 997 + 1);
    keys_ = BlockKeyChain(kScope).extend(tokens);
    bytes_.resize(keys_.size() * kBlock);
    Rng rng(1);
    for (size_t i = 0; i < bytes_.size(); i += 97) bytes_[i] = static_cast<uint8_t>(rng.next_u32());
    store_->put({.scope = store_->scope(kScope), .keys = keys_, .block_bytes = kBlock, .bytes = bytes_});
    store_->flush();
    ASSERT_EQ(store_->lookup(store_->scope(kScope), keys_, false).num_blocks, kExtents * kBlocks);
  }

  // Reads random extents; every one must come back whole and right.
  void read(int64_t num_reads, uint64_t seed) {
    Rng rng(seed);
    std::vector<uint8_t> out(kBlocks * kBlock);
    for (int64_t i = 0; i < num_reads; ++i) {
      const auto begin = static_cast<int64_t>(rng.below(kExtents)) * kBlocks;
      const StoreGet got = store_->get(
          {.scope = store_->scope(kScope), .keys = keys_, .blocks = {begin, begin + kBlocks}, .block_bytes = kBlock},
          out);
      EXPECT_EQ(got.num_blocks, kBlocks) << to_string(got.reason);
      EXPECT_EQ(std::memcmp(out.data(), bytes_.data() + begin * kBlock, out.size()), 0);
    }
  }
  void read_on_two_threads(int64_t num_reads) {
    std::thread other([&] { read(num_reads, 2); });
    read(num_reads, 3);
    other.join();
  }

  std::filesystem::path root_;
  SystemClock clock_;
  std::vector<ServerProcess> servers_;
  std::unique_ptr<FrameLoop> loop_;
  std::unique_ptr<BlockStore> store_;
  std::vector<BlockKey> keys_;
  std::vector<uint8_t> bytes_;
};

}  // namespace

TEST_F(ShardFaults, AnyOneStoppedServerFailsNoRead) {
  for (const ServerProcess& server : servers_) {
    ::kill(server.pid, SIGSTOP);
    read_on_two_threads(6);
    ::kill(server.pid, SIGCONT);
    read_on_two_threads(2);
  }
}

TEST_F(ShardFaults, OneKilledAndOneStoppedServerFailNoRead) {
  read_on_two_threads(5);
  ::kill(servers_[4].pid, SIGKILL);
  read_on_two_threads(20);
  ::kill(servers_[9].pid, SIGSTOP);
  read_on_two_threads(20);
  EXPECT_EQ(store_->devices()[4].health.state, DeviceState::kDown);
  EXPECT_NE(store_->devices()[9].health.state, DeviceState::kGood);
}

TEST_F(ShardFaults, ThreeLostServersAreAMissThatSaysSo) {
  for (const int i : {1, 5, 11}) ::kill(servers_[static_cast<size_t>(i)].pid, SIGKILL);
  std::vector<uint8_t> out(kBlocks * kBlock);
  const StoreGet got =
      store_->get({.scope = store_->scope(kScope), .keys = keys_, .blocks = {0, kBlocks}, .block_bytes = kBlock}, out);
  EXPECT_EQ(got.num_blocks, 0);
  EXPECT_EQ(got.reason, StoreMiss::kNodeLost);
}

}  // namespace deepinfer
