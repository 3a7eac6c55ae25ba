// SPDX-License-Identifier: MIT
// SIGINT and SIGTERM for a long-running service: the first asks it to finish, the second ends the program at once. They
// are taken by a thread of their own, so no code runs inside a signal handler. Made before any other thread.
#pragma once

#include <cstdint>

namespace deepinfer {

class StopSignals {
 public:
  StopSignals();
  // Waits at most that long; true once a stop was asked for.
  bool wait(int64_t milliseconds);
  // Of the first signal; 0 before.
  int signal() const;
};

}  // namespace deepinfer
