// SPDX-License-Identifier: MIT
// Positional reads and writes of files, many at once: io_uring, or a pool of threads where a container forbids it.
// Thread: any; `done` runs on a thread of the queue.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace deepinfer {

struct FileOperation {
  int fd = -1;
  bool is_write = false;
  bool sync = false;  // fdatasync after a write
  int64_t offset = 0, num_bytes = 0;
  uint8_t* data = nullptr;
  std::function<void(int64_t result)> done;  // bytes moved, or minus errno
};

class FileQueue {
 public:
  virtual ~FileQueue() = default;  // finishes what was submitted
  virtual void submit(FileOperation operation) = 0;
  virtual int64_t depth() const = 0;  // submitted and not done
};

// nullptr when the kernel refuses.
std::unique_ptr<FileQueue> make_uring_queue(int operations_max);
std::unique_ptr<FileQueue> make_thread_queue(int num_threads);

}  // namespace deepinfer
