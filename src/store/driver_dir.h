// SPDX-License-Identifier: MIT
// The `dir` driver: segment files in one directory of a local disk or any POSIX mount. O_DIRECT where the file system
// has it; io_uring where the kernel allows it, a pool of threads with the same contract elsewhere. One process owns the
// directory (a lock file). Thread: any.
#pragma once

#include <memory>
#include <string>

#include "store/driver.h"

namespace deepinfer {

struct DirOptions {
  std::string path;           // made when it does not exist
  bool direct = true;         // try O_DIRECT
  bool io_uring = true;       // try io_uring
  bool durable = false;       // acknowledge writes only when the disk has them (fdatasync)
  int num_threads = 4;        // of the pool, when there is no io_uring
  int operations_max = 256;   // under way at once; more wait in line
  bool allow_shared = false;  // for read-only tools: do not take the lock
};

struct DirTraits {
  bool direct = false, io_uring = false;
};

// Errors: invalid_argument (not a directory, no permission), unavailable (another process has it).
Result<std::unique_ptr<ShardDevice>> open_dir(const DirOptions& options);
DirTraits dir_traits(const ShardDevice& device);  // precondition: made by open_dir

}  // namespace deepinfer
