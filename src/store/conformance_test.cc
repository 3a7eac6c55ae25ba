// SPDX-License-Identifier: MIT
// One suite for all drivers: directories with io_uring and with threads, shard servers with a secret and with TLS.
#include "store/conformance.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "store/driver_dir.h"
#include "store/driver_shard.h"
#include "store/shard_server.h"

namespace deepinfer {
namespace {

class Conformance : public testing::Test {
 protected:
  Conformance() {
    root_ = std::filesystem::temp_directory_path() / ("deepinfer_conformance_" + std::to_string(::getpid()));
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~Conformance() override {
    servers_.clear();
    std::filesystem::remove_all(root_);
  }

  std::string folder(int i) const { return root_ / ("d" + std::to_string(i)); }

  OpenDevices dirs(int n, bool io_uring) {
    return [this, n, io_uring]() -> Result<std::vector<std::unique_ptr<ShardDevice>>> {
      std::vector<std::unique_ptr<ShardDevice>> devices;
      for (int i = 0; i < n; ++i) {
        ASSIGN_OR_RETURN(auto device, open_dir({.path = folder(i), .io_uring = io_uring}));
        devices.push_back(std::move(device));
      }
      return devices;
    };
  }
  OpenDevices shards(int n, const FrameSecurity& security) {
    for (int i = 0; i < n; ++i) {
      auto device = open_dir({.path = folder(i)});
      EXPECT_TRUE(device.ok());
      auto server = ShardServer::start({.security = security}, std::move(device).value());
      EXPECT_TRUE(server.ok()) << server.status().message();
      servers_.push_back(std::move(server).value());
    }
    return [this, security]() -> Result<std::vector<std::unique_ptr<ShardDevice>>> {
      std::vector<std::unique_ptr<ShardDevice>> devices;
      for (const auto& server : servers_) {
        ASSIGN_OR_RETURN(auto device,
                         open_shard(loop_, {.host = "127.0.0.1", .port = server->port(), .security = security}));
        devices.push_back(std::move(device));
      }
      return devices;
    };
  }
  void run(const OpenDevices& open) {
    for (const ConformanceCheck& check : conformance_checks()) {
      const Status status = check.run(open, clock_);
      EXPECT_TRUE(status.ok()) << check.name << ": " << status.message();
    }
  }
  // Certificates as an operator makes them.
  FrameSecurity certificates(const std::string& name) {
    const std::string at = root_ / name;
    const std::string command =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=" + name + " -keyout " +
        at + ".key -out " + at + ".pem 2>/dev/null";
    EXPECT_EQ(std::system(command.c_str()), 0);
    return {.tls_certificate = at + ".pem", .tls_key = at + ".key", .tls_authority = at + ".pem"};
  }

  std::filesystem::path root_;
  SystemClock clock_;
  FrameLoop loop_;
  std::vector<std::unique_ptr<ShardServer>> servers_;
};

}  // namespace

TEST_F(Conformance, OneDirectoryWithThreads) { run(dirs(1, false)); }
TEST_F(Conformance, OneDirectoryWithIoUring) { run(dirs(1, true)); }
TEST_F(Conformance, TwelveDirectories) { run(dirs(12, true)); }
TEST_F(Conformance, TwelveShardServersWithASecret) { run(shards(12, {.secret = "s3cret"})); }
TEST_F(Conformance, OneShardServerWithCertificates) { run(shards(1, certificates("both"))); }

TEST_F(Conformance, AWrongSecretIsRefused) {
  (void)shards(1, {.secret = "right"});
  auto device = open_shard(loop_, {.host = "127.0.0.1", .port = servers_[0]->port(), .security = {.secret = "wrong"}});
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(device.value()->list().status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(servers_[0]->counts().num_refused, 1);
}

TEST_F(Conformance, AForeignCertificateIsRefused) {
  (void)shards(1, certificates("server"));
  FrameSecurity foreign = certificates("foreign");
  foreign.tls_authority = root_ / "server.pem";
  auto device = open_shard(loop_, {.host = "127.0.0.1", .port = servers_[0]->port(), .security = foreign});
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(device.value()->list().status().code(), StatusCode::kUnavailable);
}

TEST_F(Conformance, NobodyListening) {
  auto device = open_shard(loop_, {.host = "127.0.0.1", .port = 1});
  ASSERT_TRUE(device.ok());
  EXPECT_EQ(device.value()->list().status().code(), StatusCode::kUnavailable);
  EXPECT_FALSE(parse_shard_address("host").ok());
  EXPECT_FALSE(parse_shard_address("1.2.3.4:99999").ok());
  EXPECT_EQ(parse_shard_address("1.2.3.4:99").value().port, 99);
}

}  // namespace deepinfer
