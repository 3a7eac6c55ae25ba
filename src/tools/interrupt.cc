// SPDX-License-Identifier: MIT
#include "tools/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace deepinfer {
namespace {
std::atomic<int> num_signals{0};

void on_signal(int) {
  if (num_signals.fetch_add(1) > 0) _exit(130);
}
}  // namespace

void install_interrupt_handler() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  signal(SIGPIPE, SIG_IGN);
}

bool interrupted() { return num_signals.load() > 0; }
void clear_interrupt() { num_signals = 0; }

}  // namespace deepinfer
