// SPDX-License-Identifier: MIT
// Shard servers that register themselves, and a store that finds them, loses one and gets it back at another address.
#include "store/members.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <thread>

#include "store/block_store.h"
#include "store/driver_dir.h"
#include "store/shard_server.h"
#include "store/store_target.h"

namespace deepinfer {
namespace {

constexpr int64_t kBlock = 4096;

// The same table, for each of its users their own.
struct SharedTable final : LeaseTable {
  explicit SharedTable(LeaseTable& shared) : table(shared) {}
  Result<LeaseId> acquire(const std::string& n, const std::string& v, int64_t t) override {
    return table.acquire(n, v, t);
  }
  Status renew(LeaseId lease) override { return table.renew(lease); }
  Status release(LeaseId lease) override { return table.release(lease); }
  Result<std::vector<LeaseHolder>> holders(const std::string& prefix) override { return table.holders(prefix); }
  Status keep(const std::string& name, const std::string& value) override { return table.keep(name, value); }
  LeaseTable& table;
};

struct Members : testing::Test {
  struct Server {
    std::unique_ptr<ShardServer> server;
    std::unique_ptr<HeldLease> lease;
  };

  ~Members() override {
    servers.clear();
    std::filesystem::remove_all(root);
  }
  void start(int i, int port = 0) {
    Server& started = servers[i];
    auto device = open_dir({.path = root / std::to_string(i)});
    started.server = std::move(ShardServer::start({.port = port}, std::move(device).value())).value();
    auto lease = register_shard(*table, "kv", "shard" + std::to_string(100 + i),
                                "127.0.0.1:" + std::to_string(started.server->port()), clock);
    ASSERT_TRUE(lease.ok()) << lease.status().message();
    started.lease = std::move(lease).value();
  }
  MemberOptions options() const { return {.store = "kv", .owner = "test", .poll_ns = 20'000'000}; }
  Result<std::vector<std::unique_ptr<ShardDevice>>> open() {
    return open_members(std::make_unique<SharedTable>(*table), options(), loop, clock);
  }

  const std::filesystem::path root =
      std::filesystem::temp_directory_path() / ("deepinfer_members_" + std::to_string(::getpid()));
  const SystemClock clock;
  const std::unique_ptr<LeaseTable> table = make_local_leases(clock);
  FrameLoop loop;
  std::map<int, Server> servers;
};

// Waits for what the watching thread does.
bool soon(const std::function<bool()>& condition) {
  for (int i = 0; i < 6000; ++i) {
    if (condition()) return true;
    ::usleep(10'000);
  }
  return false;
}

}  // namespace

TEST(MemberPlace, IsAnAddressAndAName) {
  EXPECT_EQ(parse_member_place("127.0.0.1:2379").value().store, "default");
  EXPECT_EQ(parse_member_place("127.0.0.1:2379/kv-1").value().store, "kv-1");
  EXPECT_EQ(parse_member_place("127.0.0.1:2379/kv-1").value().address, "127.0.0.1:2379");
  for (const char* wrong : {"", "127.0.0.1", "127.0.0.1:2379/", "127.0.0.1:2379/a/b", "127.0.0.1:2379/a b"})
    EXPECT_EQ(parse_member_place(wrong).status().code(), StatusCode::kInvalidArgument) << wrong;
}

TEST_F(Members, AStoreFindsItsShardsLosesOneAndGetsItBackElsewhere) {
  for (int i = 0; i < 12; ++i) start(i);
  auto devices = open();
  ASSERT_TRUE(devices.ok()) << devices.status().message();
  ASSERT_EQ(devices.value().size(), 12u);
  EXPECT_EQ(devices.value()[3]->name(), "shard103");
  ShardDevice& third = *devices.value()[3];
  StoreOptions store_options;
  ASSERT_TRUE(choose_code(12, store_options).ok());
  store_options.min_acks = 12;
  auto store = std::move(BlockStore::open(store_options, std::move(devices).value(), clock)).value();
  const KeyScope scope{.tenant_salt = "members", .model_revision = "m"};
  std::vector<TokenId> tokens(128 * 8, 5);
  const std::vector<BlockKey> keys = BlockKeyChain(scope).extend(tokens);
  std::vector<uint8_t> bytes(keys.size() * kBlock);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<uint8_t>(i * 7);
  store->put({.scope = store->scope(scope), .keys = keys, .block_bytes = kBlock, .bytes = bytes});
  store->flush();
  ASSERT_EQ(store->stats().num_blocks, 8);
  const auto read_all = [&] {
    std::vector<uint8_t> out(bytes.size());
    const StoreGet got =
        store->get({.scope = store->scope(scope), .keys = keys, .blocks = {0, 8}, .block_bytes = kBlock}, out);
    return got.num_blocks == 8 && out == bytes;
  };
  EXPECT_TRUE(read_all());

  servers.erase(3);  // its lease ends with it
  EXPECT_TRUE(soon([&] { return third.list().status().message().find("its lease has ended") != std::string::npos; }));
  EXPECT_TRUE(read_all());

  start(3);  // the same data, at another port
  EXPECT_TRUE(soon([&] { return third.list().ok(); }));
  EXPECT_EQ(third.list().value().size(), 1u);
  EXPECT_TRUE(read_all());
}

TEST_F(Members, OneAtATimeHasTheStoreOpen) {
  start(0);
  {
    const auto first = open();
    ASSERT_TRUE(first.ok());
    MemberOptions hurried = options();
    hurried.patience_ns = 0;
    const auto second = open_members(std::make_unique<SharedTable>(*table), hurried, loop, clock);
    EXPECT_EQ(second.status().code(), StatusCode::kUnavailable);
    EXPECT_NE(second.status().message().find("held by test"), std::string::npos);
  }
  EXPECT_TRUE(open().ok());
}

TEST_F(Members, ANewStoreNeedsOneOrTwelveAndKeepsThem) {
  for (int i = 0; i < 11; ++i) start(i);
  EXPECT_EQ(open().status().code(), StatusCode::kInvalidArgument);
  start(11);
  EXPECT_EQ(open().value().size(), 12u);
  start(12);  // too late
  EXPECT_EQ(open().value().size(), 12u);
  EXPECT_EQ(table->holders("deepinfer/store/kv/members").value()[0].value.size(), 12 * 9 - 1u);
  EXPECT_EQ(register_shard(*table, "kv", "a/b", "127.0.0.1:1", clock).status().code(), StatusCode::kInvalidArgument);
}

TEST_F(Members, WhoseLeaseRanOutTakesNoWrites) {
  bool has_lease = true;
  auto device = open_dir({.path = root / "0"});
  const auto server =
      std::move(ShardServer::start({.may_write = [&] { return has_lease; }}, std::move(device).value())).value();
  const auto client =
      std::move(open_devices({.shards = "127.0.0.1:" + std::to_string(server->port())}, loop, clock)).value();
  const SegmentId segment{uint64_t{1} << 40};
  EXPECT_TRUE(write_now(*client[0], segment, 0, PageBuffer::of(4096), 4096).ok());
  has_lease = false;
  EXPECT_EQ(write_now(*client[0], segment, 4096, PageBuffer::of(4096), 4096).code(), StatusCode::kUnavailable);
  EXPECT_EQ(client[0]->drop(segment).code(), StatusCode::kUnavailable);
  EXPECT_TRUE(read_now(*client[0], segment, 0, 4096).ok());
}

}  // namespace deepinfer
