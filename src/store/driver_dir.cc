// SPDX-License-Identifier: MIT
#include "store/driver_dir.h"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <list>
#include <mutex>
#include <unordered_map>

#include "base/check.h"
#include "store/file_operations.h"

namespace deepinfer {
namespace {

constexpr size_t kOpenFilesMax = 512;

Status status_of(int error, const std::string& path) {
  const std::string message = fmt::format("{}: {}", path, std::strerror(error));
  switch (error) {
    case ENOENT: return not_found(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG: return resource_exhausted(message);
    case EIO:
    case EUCLEAN: return corruption(message);
    default: return unavailable(message);
  }
}

struct OpenFile {
  int fd;
  explicit OpenFile(int descriptor) : fd(descriptor) {}
  OpenFile(const OpenFile&) = delete;
  ~OpenFile() { ::close(fd); }
};

// Open descriptors, least recently used ones closed; one in use stays open until its last operation ends.
class OpenFiles {
 public:
  OpenFiles(std::string folder, bool direct) : folder_(std::move(folder)), direct_(direct) {}

  std::string path_of(SegmentId id) const { return fmt::format("{}/{:016x}.seg", folder_, static_cast<uint64_t>(id)); }
  bool direct() const { return direct_; }

  Result<std::shared_ptr<OpenFile>> open(SegmentId id, bool create) {
    const std::lock_guard lock(mutex_);
    if (const auto at = files_.find(static_cast<uint64_t>(id)); at != files_.end()) {
      recent_.splice(recent_.begin(), recent_, at->second.place);
      return at->second.file;
    }
    const std::string path = path_of(id);
    const int flags = O_RDWR | O_CLOEXEC | (create ? O_CREAT : 0);
    int fd = ::open(path.c_str(), flags | (direct_ ? O_DIRECT : 0), 0644);
    if (fd < 0 && errno == EINVAL && direct_) {  // a file system without it
      direct_ = false;
      fd = ::open(path.c_str(), flags, 0644);
    }
    if (fd < 0) return status_of(errno, path);
    recent_.push_front(static_cast<uint64_t>(id));
    auto file = std::make_shared<OpenFile>(fd);
    files_[static_cast<uint64_t>(id)] = {file, recent_.begin()};
    if (files_.size() > kOpenFilesMax) {
      files_.erase(recent_.back());
      recent_.pop_back();
    }
    return file;
  }
  void forget(SegmentId id) {
    const std::lock_guard lock(mutex_);
    const auto at = files_.find(static_cast<uint64_t>(id));
    if (at == files_.end()) return;
    recent_.erase(at->second.place);
    files_.erase(at);
  }

 private:
  struct Kept {
    std::shared_ptr<OpenFile> file;
    std::list<uint64_t>::iterator place;
  };
  const std::string folder_;
  std::mutex mutex_;  // guards what follows
  bool direct_;
  std::list<uint64_t> recent_;
  std::unordered_map<uint64_t, Kept> files_;
};

class DirDevice final : public ShardDevice {
 public:
  DirDevice(const DirOptions& options, int lock_fd)
      : options_(options), lock_(lock_fd), folder_(options.path + "/segments"), files_(folder_, options.direct) {
    if (options.io_uring) queue_ = make_uring_queue(options.operations_max);
    uses_uring_ = queue_ != nullptr;
    if (!queue_) queue_ = make_thread_queue(options.num_threads);
  }

  std::string name() const override { return options_.path; }
  DirTraits traits() const { return {files_.direct(), uses_uring_}; }

  DeviceOperation read(SegmentId segment, int64_t offset, int64_t num_bytes, PageBuffer buffer,
                       DeviceDone done) override {
    auto file = files_.open(segment, false);
    if (!file.ok()) {
      done({.status = file.status(), .buffer = std::move(buffer), .queue_depth = queue_->depth()});
      return {};
    }
    submit(std::move(file).value(), segment, false, offset, num_bytes, std::move(buffer), std::move(done));
    return {};
  }

  void write(SegmentId segment, int64_t offset, PageBuffer buffer, int64_t num_bytes, DeviceDone done) override {
    auto file = files_.open(segment, true);
    if (!file.ok()) {
      done({.status = file.status(), .buffer = std::move(buffer), .queue_depth = queue_->depth()});
      return;
    }
    submit(std::move(file).value(), segment, true, offset, num_bytes, std::move(buffer), std::move(done));
  }

  Result<std::vector<SegmentFile>> list() override {
    std::vector<SegmentFile> found;
    DIR* const folder = ::opendir(folder_.c_str());
    if (!folder) return status_of(errno, folder_);
    while (const dirent* item = ::readdir(folder)) {
      const std::string_view name = item->d_name;
      uint64_t id = 0;
      if (name.size() != 20 || !name.ends_with(".seg")) continue;
      const auto parsed = std::from_chars(name.data(), name.data() + 16, id, 16);
      if (parsed.ec != std::errc() || parsed.ptr != name.data() + 16) continue;
      struct stat info {};
      if (::stat(files_.path_of(SegmentId{id}).c_str(), &info) == 0)
        found.push_back({SegmentId{id}, static_cast<int64_t>(info.st_size)});
    }
    ::closedir(folder);
    return found;
  }

  Status drop(SegmentId segment) override {
    files_.forget(segment);
    if (::unlink(files_.path_of(segment).c_str()) != 0 && errno != ENOENT)
      return status_of(errno, files_.path_of(segment));
    return {};
  }

  DeviceSpace space() override {
    struct statvfs info {};
    if (::statvfs(folder_.c_str(), &info) != 0) return {};
    const auto unit = static_cast<int64_t>(info.f_frsize);
    return {static_cast<int64_t>(info.f_blocks) * unit, static_cast<int64_t>(info.f_bavail) * unit};
  }

 private:
  void submit(std::shared_ptr<OpenFile> file, SegmentId segment, bool is_write, int64_t offset, int64_t num_bytes,
              PageBuffer buffer, DeviceDone done) {
    CHECK(offset % kPageBytes == 0 && num_bytes % kPageBytes == 0 && num_bytes <= buffer.size());
    FileOperation operation{.fd = file->fd,
                            .is_write = is_write,
                            .sync = is_write && options_.durable,
                            .offset = offset,
                            .num_bytes = num_bytes,
                            .data = buffer.data()};
    // std::function wants copies, and a buffer has one owner: they travel in a box.
    struct Box {
      std::shared_ptr<OpenFile> file;
      PageBuffer buffer;
      DeviceDone done;
    };
    auto box = std::make_shared<Box>(Box{std::move(file), std::move(buffer), std::move(done)});
    // Not through queue_: the last operations end while it is being destroyed.
    operation.done = [this, queue = queue_.get(), box, segment, is_write, num_bytes](int64_t result) {
      DeviceReply reply{.buffer = std::move(box->buffer), .queue_depth = queue->depth()};
      if (result < 0) reply.status = status_of(static_cast<int>(-result), files_.path_of(segment));
      else if (is_write && result < num_bytes)
        reply.status = resource_exhausted(files_.path_of(segment) + ": only a part was written");
      else reply.num_bytes = result;
      box->done(std::move(reply));
    };
    queue_->submit(std::move(operation));
  }

  const DirOptions options_;
  const OpenFile lock_;
  const std::string folder_;
  OpenFiles files_;
  std::unique_ptr<FileQueue> queue_;  // its threads use all of the above
  bool uses_uring_ = false;
};

Result<int> take_lock(const DirOptions& options) {
  const std::string path = options.path + "/LOCK";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (fd < 0) return invalid_argument(fmt::format("{}: {}", path, std::strerror(errno)));
  if (options.allow_shared || ::flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  ::close(fd);
  return unavailable(options.path + ": another process has this store open");
}

}  // namespace

Result<std::unique_ptr<ShardDevice>> open_dir(const DirOptions& options) {
  std::error_code error;
  std::filesystem::create_directories(options.path + "/segments", error);
  if (error) return invalid_argument(fmt::format("{}: {}", options.path, error.message()));
  ASSIGN_OR_RETURN(const int lock_fd, take_lock(options));
  return std::unique_ptr<ShardDevice>(new DirDevice(options, lock_fd));
}

DirTraits dir_traits(const ShardDevice& device) { return static_cast<const DirDevice&>(device).traits(); }

}  // namespace deepinfer
