// SPDX-License-Identifier: MIT
#include "tools/stop_signals.h"

#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace deepinfer {
namespace {

// Lives as long as the program: the thread below never ends.
struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  std::atomic<int> first{0};
  std::atomic<bool> reload{false};
};

Shared& shared() {
  static Shared& instance = *new Shared;
  return instance;
}

sigset_t our_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, signal);
  return set;
}

void take_signals() {
  const sigset_t set = our_signals();
  for (;;) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    if (signal == SIGHUP) {
      shared().reload = true;
    } else {
      if (shared().first != 0) _exit(128 + signal);
      shared().first = signal;
    }
    const std::lock_guard lock(shared().mutex);
    shared().changed.notify_all();
  }
}

}  // namespace

StopSignals::StopSignals() {
  const sigset_t set = our_signals();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);  // inherited by every thread made from here on
  ::signal(SIGPIPE, SIG_IGN);
  std::thread(take_signals).detach();
}

bool StopSignals::wait(int64_t milliseconds) {
  std::unique_lock lock(shared().mutex);
  shared().changed.wait_for(lock, std::chrono::milliseconds(milliseconds),
                            [] { return shared().first != 0 || shared().reload; });
  return shared().first != 0;
}

bool StopSignals::take_reload() { return shared().reload.exchange(false); }

int StopSignals::signal() const { return shared().first; }

}  // namespace deepinfer
