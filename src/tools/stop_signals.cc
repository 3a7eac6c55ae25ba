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
};

Shared& shared() {
  static Shared& instance = *new Shared;
  return instance;
}

void take_signals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  for (;;) {
    int signal = 0;
    if (sigwait(&set, &signal) != 0) continue;
    if (shared().first != 0) _exit(128 + signal);
    shared().first = signal;
    const std::lock_guard lock(shared().mutex);
    shared().changed.notify_all();
  }
}

}  // namespace

StopSignals::StopSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);  // inherited by every thread made from here on
  ::signal(SIGPIPE, SIG_IGN);
  std::thread(take_signals).detach();
}

bool StopSignals::wait(int64_t milliseconds) {
  std::unique_lock lock(shared().mutex);
  return shared().changed.wait_for(lock, std::chrono::milliseconds(milliseconds), [] { return shared().first != 0; });
}

int StopSignals::signal() const { return shared().first; }

}  // namespace deepinfer
