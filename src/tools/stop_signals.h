// SPDX-License-Identifier: MIT
// Signals of a long-running service: the first SIGINT or SIGTERM asks it to finish, the second ends the program at
// once; SIGHUP asks it to read its files again. They are taken by a thread of their own, so no code runs inside a
// signal handler. Made before any other thread.
#pragma once

#include <cstdint>

namespace deepinfer {

class StopSignals {
 public:
  StopSignals();
  // Waits at most that long, or until a signal comes; true once a stop was asked for.
  bool wait(int64_t milliseconds);
  // Whether SIGHUP came since the last call.
  bool take_reload();
  // Of the first signal; 0 before.
  int signal() const;
};

}  // namespace deepinfer
