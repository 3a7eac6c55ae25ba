// SPDX-License-Identifier: MIT
#include "base/log_queue.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/log_sink.h"

namespace deepinfer {
namespace {

constexpr auto kLastWrites = std::chrono::seconds(1);
constexpr int kPollMs = 100;

int64_t num_lines(std::string_view text) { return std::ranges::count(text, '\n'); }

// What one write takes without waiting once poll() says that there is room: PIPE_BUF bytes, cut behind a line where
// there is one, since others may write to the same descriptor.
std::string_view next_piece(std::string_view text) {
  if (text.size() <= PIPE_BUF) return text;
  const size_t end = text.substr(0, PIPE_BUF).rfind('\n');
  return text.substr(0, end == std::string_view::npos ? PIPE_BUF : end + 1);
}

}  // namespace

struct LogQueue::State : LogSink {
  State(int fd_of_log, size_t most) : fd(fd_of_log), bytes_max(most) {}

  void push(std::string_view line) override {
    const std::lock_guard lock(mutex);
    if (waiting.size() + line.size() > bytes_max) {
      ++num_lost;
      add_lost_log_lines(1);
      return;
    }
    waiting += line;
    changed.notify_all();
  }

  void run() {
    std::string writing;
    for (;;) {
      {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return ending || !waiting.empty(); });
        if (waiting.empty()) break;
        writing.clear();
        writing.swap(waiting);
        is_writing = true;
      }
      write_all(writing);
      tell_lost();
      const std::lock_guard lock(mutex);
      is_writing = false;
      changed.notify_all();
    }
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  }

  // Ends early when it is given up.
  void write_all(std::string_view text) {
    while (!text.empty()) {
      if (is_given_up()) return lose(num_lines(text));
      pollfd ready{fd, POLLOUT, 0};
      if (::poll(&ready, 1, kPollMs) == 0) continue;
      const ssize_t written = ::write(fd, text.data(), next_piece(text).size());
      if (written < 0 && (errno == EINTR || errno == EAGAIN)) continue;
      if (written <= 0) return lose(num_lines(text));
      text.remove_prefix(static_cast<size_t>(written));
    }
  }

  void lose(int64_t count) {
    const std::lock_guard lock(mutex);
    num_lost += count;
    add_lost_log_lines(count);
  }

  // Once, behind the first lines that got through; where it is lost itself, the count goes on.
  void tell_lost() {
    int64_t count = 0;
    {
      const std::lock_guard lock(mutex);
      pollfd ready{fd, POLLOUT, 0};
      if (num_lost == 0 || ::poll(&ready, 1, 0) != 1) return;
      count = num_lost;
    }
    const std::string line =
        log_text(LogLevel::kWarning, "log lines were lost: what reads them was too slow, or full", {{"lines", count}});
    if (::write(fd, line.data(), line.size()) != static_cast<ssize_t>(line.size())) return;
    const std::lock_guard lock(mutex);
    num_lost -= count;
  }

  bool is_given_up() {
    const std::lock_guard lock(mutex);
    return given_up;
  }

  const int fd;
  const size_t bytes_max;
  std::mutex mutex;  // guards what stands below
  std::condition_variable changed;
  std::string waiting;
  int64_t num_lost = 0;  // and not told yet
  bool is_writing = false, ending = false, given_up = false, ended = false;
};

LogQueue::LogQueue(int fd, size_t bytes_max) : state_(std::make_shared<State>(fd, bytes_max)) {
  std::thread([state = state_] { state->run(); }).detach();
  set_log_sink(state_);
}

void LogQueue::flush() {
  std::unique_lock lock(state_->mutex);
  state_->changed.wait_for(lock, kLastWrites, [this] { return state_->waiting.empty() && !state_->is_writing; });
}

LogQueue::~LogQueue() {
  set_log_sink(nullptr);
  std::unique_lock lock(state_->mutex);
  state_->ending = true;
  state_->changed.notify_all();
  const auto is_over = [this] { return state_->ended; };
  if (state_->changed.wait_for(lock, kLastWrites, is_over)) return;
  state_->given_up = true;
  state_->changed.wait_for(lock, std::chrono::milliseconds(3 * kPollMs), is_over);
}

}  // namespace deepinfer
