// SPDX-License-Identifier: MIT
#include "store/file_operations.h"

#include <liburing.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

namespace deepinfer {
namespace {

// Moves all bytes, or up to the end of the file.
int64_t run_now(const FileOperation& operation, int64_t num_moved) {
  while (num_moved < operation.num_bytes) {
    const size_t left = static_cast<size_t>(operation.num_bytes - num_moved);
    uint8_t* const at = operation.data + num_moved;
    const ssize_t n = operation.is_write ? ::pwrite(operation.fd, at, left, operation.offset + num_moved)
                                         : ::pread(operation.fd, at, left, operation.offset + num_moved);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -errno;
    if (n == 0) break;
    num_moved += n;
  }
  if (operation.is_write && operation.sync && ::fdatasync(operation.fd) != 0) return -errno;
  return num_moved;
}

class ThreadQueue final : public FileQueue {
 public:
  explicit ThreadQueue(int num_threads) {
    for (int i = 0; i < num_threads; ++i) threads_.emplace_back([this] { work(); });
  }
  ~ThreadQueue() override {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  void submit(FileOperation operation) override {
    ++depth_;
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(operation));
    }
    wake_.notify_one();
  }
  int64_t depth() const override { return depth_; }

 private:
  void work() {
    for (;;) {
      FileOperation operation;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        operation = std::move(waiting_.front());
        waiting_.pop_front();
      }
      const int64_t result = run_now(operation, 0);
      --depth_;
      operation.done(result);
    }
  }

  std::mutex mutex_;  // guards waiting_ and stopping_
  std::condition_variable wake_;
  std::deque<FileOperation> waiting_;
  bool stopping_ = false;
  std::atomic<int64_t> depth_{0};
  std::vector<std::thread> threads_;
};

// Submitters enter operations under a mutex; one thread takes completions. What does not fit the ring waits in line.
class UringQueue final : public FileQueue {
 public:
  static std::unique_ptr<UringQueue> make(int operations_max) {
    auto queue = std::unique_ptr<UringQueue>(new UringQueue(operations_max));
    if (io_uring_queue_init(static_cast<unsigned>(operations_max), &queue->ring_, 0) != 0) return nullptr;
    queue->thread_ = std::thread([q = queue.get()] { q->complete(); });
    return queue;
  }
  ~UringQueue() override {
    if (!thread_.joinable()) return;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
      if (entry) {
        io_uring_prep_nop(entry);
        io_uring_sqe_set_data(entry, nullptr);
        io_uring_submit(&ring_);
      }
    }
    thread_.join();
    io_uring_queue_exit(&ring_);
  }

  void submit(FileOperation operation) override {
    ++depth_;
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::make_unique<FileOperation>(std::move(operation)));
    start_waiting();
  }
  int64_t depth() const override { return depth_; }

 private:
  explicit UringQueue(int operations_max) : operations_max_(operations_max) {}

  void start_waiting() {  // under mutex_
    bool any = false;
    while (!waiting_.empty() && num_running_ < operations_max_) {
      io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
      if (!entry) break;
      FileOperation* const operation = waiting_.front().release();
      waiting_.pop_front();
      const auto length = static_cast<unsigned>(operation->num_bytes);
      if (operation->is_write)
        io_uring_prep_write(entry, operation->fd, operation->data, length, static_cast<uint64_t>(operation->offset));
      else io_uring_prep_read(entry, operation->fd, operation->data, length, static_cast<uint64_t>(operation->offset));
      io_uring_sqe_set_data(entry, operation);
      ++num_running_;
      any = true;
    }
    if (any) io_uring_submit(&ring_);
  }

  // A short transfer is finished the plain way: rare, and then correct on every kernel.
  static int64_t finished(const FileOperation& operation, int64_t result) {
    if (result == -EINTR || result == -EAGAIN) return run_now(operation, 0);
    if (result < 0) return result;
    if (result < operation.num_bytes || operation.sync) return run_now(operation, result);
    return result;
  }

  void complete() {
    for (;;) {
      io_uring_cqe* entry = nullptr;
      const int error = io_uring_wait_cqe(&ring_, &entry);
      if (error == -EINTR) continue;
      CHECK(error == 0);
      const std::unique_ptr<FileOperation> operation(static_cast<FileOperation*>(io_uring_cqe_get_data(entry)));
      const int64_t result = entry->res;
      io_uring_cqe_seen(&ring_, entry);
      bool last = false;
      {
        const std::lock_guard lock(mutex_);
        if (operation) --num_running_;
        start_waiting();
        last = stopping_ && num_running_ == 0 && waiting_.empty();
      }
      if (operation) {
        const int64_t moved = finished(*operation, result);
        --depth_;
        operation->done(moved);
      }
      if (last) return;
    }
  }

  const int operations_max_;
  io_uring ring_{};
  std::mutex mutex_;  // guards the submission side and what follows
  std::deque<std::unique_ptr<FileOperation>> waiting_;
  int num_running_ = 0;
  bool stopping_ = false;
  std::atomic<int64_t> depth_{0};
  std::thread thread_;
};

}  // namespace

std::unique_ptr<FileQueue> make_uring_queue(int operations_max) { return UringQueue::make(operations_max); }
std::unique_ptr<FileQueue> make_thread_queue(int num_threads) { return std::make_unique<ThreadQueue>(num_threads); }

}  // namespace deepinfer
