// SPDX-License-Identifier: MIT
#include "base/log_queue.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/log_sink.h"

namespace deepinfer {
namespace {

struct Pipe {
  Pipe() { EXPECT_EQ(::pipe(ends), 0); }
  ~Pipe() {
    for (const int end : ends)
      if (end >= 0) ::close(end);
  }
  std::string read_to_end() {
    ::close(std::exchange(ends[1], -1));
    return read_until([](const std::string&) { return false; });
  }
  template <typename IsEnough>
  std::string read_until(const IsEnough& is_enough) {
    std::string all;
    char buffer[65536];
    while (!is_enough(all)) {
      const ssize_t count = ::read(ends[0], buffer, sizeof buffer);
      if (count <= 0) break;
      all.append(buffer, static_cast<size_t>(count));
    }
    return all;
  }
  int ends[2] = {-1, -1};
};

int64_t count(const std::string& text, const std::string& part) {
  int64_t found = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(Log, NumbersAreRoundedToThreePlaces) {
  EXPECT_EQ(log_text(LogLevel::kInfo, "a", {{"ms", 197.24456400000003}, {"n", 12}, {"s", 2.0}}),
            "a  ms=197.245  n=12  s=2.0\n");
}

TEST(LogQueue, LinesArriveWholeAndInOrder) {
  Pipe pipe;
  {
    const LogQueue queue(pipe.ends[1]);
    for (int i = 0; i < 100; ++i) log_line(LogLevel::kInfo, "line " + std::to_string(i));
  }
  std::string expected;
  for (int i = 0; i < 100; ++i) expected += "line " + std::to_string(i) + "\n";
  EXPECT_EQ(pipe.read_to_end(), expected);
}

TEST(LogQueue, AFlushedLineIsThere) {
  Pipe pipe;
  ASSERT_EQ(::fcntl(pipe.ends[0], F_SETFL, O_NONBLOCK), 0);
  LogQueue queue(pipe.ends[1]);
  for (int i = 0; i < 20; ++i) {
    log_line(LogLevel::kInfo, "line");
    queue.flush();
    char buffer[64];
    ASSERT_EQ(::read(pipe.ends[0], buffer, sizeof buffer), 5);
  }
}

// Nobody reads: were a line to wait for its reader, this would never end.
TEST(LogQueue, AReaderThatStoppedHoldsUpNobody) {
  Pipe pipe;
  const int64_t lost_before = num_lost_log_lines();
  const int64_t kLines = 20'000;
  const std::string text(200, 'x');
  auto queue = std::make_unique<LogQueue>(pipe.ends[1], 64 << 10);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int64_t i = 0; i < kLines / 4; ++i) log_line(LogLevel::kInfo, text);
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(num_lost_log_lines(), lost_before);
  // It reads again: every line is there or counted, and the log says so itself.
  const std::string read =
      pipe.read_until([](const std::string& all) { return all.find("lines=") != std::string::npos; });
  queue.reset();
  const std::string all = read + pipe.read_to_end();
  EXPECT_EQ(count(all, text + "\n") + num_lost_log_lines() - lost_before, kLines);
  EXPECT_GE(count(all, "log lines were lost"), 1);
}

TEST(LogQueue, EndsThoughItsReaderNeverComesBack) {
  Pipe pipe;
  const int64_t lost_before = num_lost_log_lines();
  {
    const LogQueue queue(pipe.ends[1]);
    for (int i = 0; i < 1000; ++i) log_line(LogLevel::kInfo, std::string(200, 'x'));
  }
  const int64_t lost = num_lost_log_lines() - lost_before;
  EXPECT_GT(lost, 0);  // a pipe holds 64 KiB
  EXPECT_EQ(count(pipe.read_to_end(), "\n") + lost, 1000);
}

TEST(LogQueue, AFullDiskLosesLinesAndSaysHowMany) {
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  ASSERT_GE(full, 0);
  const int64_t lost_before = num_lost_log_lines();
  {
    const LogQueue queue(full);
    for (int i = 0; i < 10; ++i) log_line(LogLevel::kInfo, "line");
  }
  EXPECT_EQ(num_lost_log_lines() - lost_before, 10);
  ::close(full);
}

}  // namespace
}  // namespace deepinfer
