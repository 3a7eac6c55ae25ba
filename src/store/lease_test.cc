// SPDX-License-Identifier: MIT
// The table of this process, and a real etcd where one is installed (scripts/install_packages test).
#include "store/lease.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>

#include "store/ttl.h"

namespace deepinfer {
namespace {

void check_table(LeaseTable& table, const std::string& prefix) {
  const auto a = table.acquire(prefix + "a", "one", 2 * kSecondNs);
  ASSERT_TRUE(a.ok()) << a.status().message();
  EXPECT_EQ(table.acquire(prefix + "a", "two", 2 * kSecondNs).status().code(), StatusCode::kUnavailable);
  const auto b = table.acquire(prefix + "b", "two", 2 * kSecondNs);
  ASSERT_TRUE(b.ok());
  const auto holders = table.holders(prefix);
  ASSERT_TRUE(holders.ok());
  ASSERT_EQ(holders.value().size(), 2u);
  EXPECT_EQ(holders.value()[0].name, prefix + "a");
  EXPECT_EQ(holders.value()[1].value, "two");
  EXPECT_TRUE(table.renew(a.value()).ok());
  EXPECT_TRUE(table.release(a.value()).ok());
  EXPECT_FALSE(table.renew(a.value()).ok());
  EXPECT_TRUE(table.acquire(prefix + "a", "three", 2 * kSecondNs).ok());
  ASSERT_TRUE(table.keep(prefix + "kept", "first").ok());
  ASSERT_TRUE(table.keep(prefix + "kept", "second").ok());
  ASSERT_EQ(table.holders(prefix + "kept").value().size(), 1u);
  EXPECT_EQ(table.holders(prefix + "kept").value()[0].value, "first");
  EXPECT_NE(table.acquire(prefix + "kept", "four", 2 * kSecondNs).status().message().find("held by first"),
            std::string::npos);
}

// A manual clock that the lease's thread reads, too.
struct SharedClock final : Clock {
  int64_t monotonic_ns() const override { return now_ns; }
  int64_t unix_ns() const override { return now_ns; }
  void advance_ns(int64_t ns) { now_ns += ns; }
  std::atomic<int64_t> now_ns{0};
};

struct Etcd {
  std::string folder = std::filesystem::temp_directory_path() / ("deepinfer_etcd_" + std::to_string(::getpid()));
  int port = 20000 + ::getpid() % 20000;
  pid_t pid = 0;

  bool start() {
    const std::string client = "http://127.0.0.1:" + std::to_string(port);
    const std::string peer = "http://127.0.0.1:" + std::to_string(port + 1);
    std::vector<std::string> words = {"etcd",
                                      "--data-dir",
                                      folder,
                                      "--listen-client-urls",
                                      client,
                                      "--advertise-client-urls",
                                      client,
                                      "--listen-peer-urls",
                                      peer,
                                      "--initial-advertise-peer-urls",
                                      peer,
                                      "--initial-cluster",
                                      "default=" + peer};
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", 1, 0);
    posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", 1, 0);
    const int error = ::posix_spawnp(&pid, "etcd", &actions, nullptr, arguments.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    return error == 0;
  }
  ~Etcd() {
    if (pid > 0) {
      ::kill(pid, SIGKILL);
      ::waitpid(pid, nullptr, 0);
    }
    std::filesystem::remove_all(folder);
  }
};

}  // namespace

TEST(Leases, TheLocalTableKeepsOneHolderAName) {
  const SystemClock clock;
  check_table(*make_local_leases(clock), "shards/");
}

TEST(Leases, ALocalLeaseRunsOut) {
  ManualClock clock;
  const auto table = make_local_leases(clock);
  const auto lease = table->acquire("writer", "one", kSecondNs);
  ASSERT_TRUE(lease.ok());
  clock.advance_ns(kSecondNs);
  EXPECT_EQ(table->renew(lease.value()).code(), StatusCode::kNotFound);
  EXPECT_TRUE(table->acquire("writer", "two", kSecondNs).ok());
}

TEST(Leases, AHolderThatCannotRenewFencesItselfAtHalfTime) {
  struct Unreachable final : LeaseTable {
    Result<LeaseId> acquire(const std::string&, const std::string&, int64_t) override { return LeaseId{1}; }
    Status renew(LeaseId) override { return unavailable("no answer"); }
    Status release(LeaseId) override { return {}; }
    Result<std::vector<LeaseHolder>> holders(const std::string&) override { return std::vector<LeaseHolder>(); }
    Status keep(const std::string&, const std::string&) override { return {}; }
  } table;
  SharedClock clock;
  const auto held = HeldLease::acquire(table, {"writer", "one", 60 * kSecondNs}, clock);
  ASSERT_TRUE(held.ok());
  EXPECT_TRUE(held.value()->is_valid());
  clock.advance_ns(30 * kSecondNs - 1);
  EXPECT_TRUE(held.value()->is_valid());
  clock.advance_ns(1);
  EXPECT_FALSE(held.value()->is_valid());
}

TEST(Leases, OneThatRanOutIsAcquiredAnewUnlessSomebodyElseHasIt) {
  SharedClock clock;
  const auto table = make_local_leases(clock);
  constexpr int64_t kTtl = 60'000'000;  // so that the thread, whose waiting is real, tries again every 10 ms
  const auto held = HeldLease::acquire(*table, {"writer", "one", kTtl}, clock);
  ASSERT_TRUE(held.ok());
  const auto wait_until = [&](bool valid) {
    for (int i = 0; i < 3000 && held.value()->is_valid() != valid; ++i) ::usleep(10'000);
    return held.value()->is_valid() == valid;
  };
  clock.advance_ns(kTtl);
  EXPECT_TRUE(wait_until(true));
  // It may be taken in the moment in which it has run out and its holder has not tried yet.
  Result<LeaseId> other = unavailable("");
  for (int i = 0; i < 1000 && !other.ok(); ++i) {
    clock.advance_ns(kTtl);
    other = table->acquire("writer", "two", INT64_MAX / 4);
  }
  ASSERT_TRUE(other.ok());
  clock.advance_ns(kTtl);
  EXPECT_TRUE(wait_until(false));
  EXPECT_EQ(table->holders("writer").value()[0].value, "two");
  ASSERT_TRUE(table->release(other.value()).ok());
  EXPECT_TRUE(wait_until(true));
}

TEST(Leases, EtcdDoesTheSame) {
  Etcd etcd;
  if (!etcd.start()) GTEST_SKIP() << "etcd is not installed (package etcd-server)";
  const auto table = make_etcd_leases("127.0.0.1:" + std::to_string(etcd.port));
  ASSERT_TRUE(table.ok());
  bool is_up = false;
  for (int i = 0; i < 300 && !is_up; ++i) {
    is_up = table.value()->holders("x").ok();
    if (!is_up) ::usleep(100'000);
  }
  ASSERT_TRUE(is_up);
  check_table(*table.value(), "deepinfer/store/shards/");
  const SystemClock clock;
  {
    const auto held = HeldLease::acquire(*table.value(), {"deepinfer/store/writer", "me", 2 * kSecondNs}, clock);
    ASSERT_TRUE(held.ok()) << held.status().message();
    EXPECT_EQ(table.value()->holders("deepinfer/store/writer").value().size(), 1u);
  }
  EXPECT_TRUE(table.value()->holders("deepinfer/store/writer").value().empty());
}

}  // namespace deepinfer
