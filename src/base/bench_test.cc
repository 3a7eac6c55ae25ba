// SPDX-License-Identifier: MIT
#include "base/bench.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "base/peer_bench.h"

namespace deepinfer {
namespace {

std::string printed(BenchRow row) {
  BenchReport report;
  testing::internal::CaptureStdout();
  report.add(std::move(row));
  return testing::internal::GetCapturedStdout();
}

TEST(BenchReport, APeersFigureIsNamedEvenWhereItIsZero) {
  const std::string line = printed({.name = "wrong", .value = 2, .unit = "tests", .peer = BenchPeer{"other", 0}});
  EXPECT_TRUE(line.ends_with("  other 0\n")) << line;  // no ratio to nothing
  EXPECT_TRUE(printed({.name = "rate", .value = 6, .unit = "GB/s", .peer = BenchPeer{"other", 3}})
                  .ends_with("  other 3 (2.00x)\n"));
  EXPECT_EQ(printed({.name = "alone", .value = 6, .unit = "GB/s"}).find("x)"), std::string::npos);
}

TEST(BenchReport, TheFileHasARowACaseWithThePeer) {
  BenchReport report;
  testing::internal::CaptureStdout();
  report.add({.name = "a, b", .value = 1.5, .unit = "us", .peer = BenchPeer{"other", 0}, .note = "n"});
  testing::internal::GetCapturedStdout();
  const auto path = std::filesystem::temp_directory_path() / ("deepinfer_bench_test_" + std::to_string(getpid()));
  ASSERT_TRUE(report.write_csv(path.string(), "some", "note").ok());
  EXPECT_EQ(read_file(path.string()).value(),
            "# some note\nbench,case,value,unit,ceiling,ceiling_name,peer,peer_name,note\n"
            "some,\"a, b\",1.5,us,0,,0,other,\"n\"\n");
  std::filesystem::remove(path);
  EXPECT_FALSE(report.write_csv("/nowhere/at/all", "some", "note").ok());
}

TEST(PeerScript, WhatItPrintedCountsEvenWhereItFails) {
  const auto path = std::filesystem::temp_directory_path() / ("deepinfer_peer_test_" + std::to_string(getpid()));
  ASSERT_TRUE(write_file_atomically(path.string(), "echo \"$1 and $2\"; exit 3\n").ok());
  BenchOptions options;
  options.extra["python"] = "/bin/sh";
  const std::string arguments[] = {"one", "two words"};
  testing::internal::CaptureStderr();
  EXPECT_EQ(run_peer_script(options, path.string(), arguments), "one and two words\n");
  EXPECT_NE(testing::internal::GetCapturedStderr().find("did not run"), std::string::npos);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace deepinfer
