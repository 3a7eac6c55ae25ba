// SPDX-License-Identifier: MIT
// A segment is a row of objects of 32 MiB: Ceph limits an object's size, and a row crosses at most one border.
#include "store/driver_rados.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include "base/check.h"

namespace deepinfer {
namespace {

constexpr int64_t kObjectBytes = int64_t{32} << 20;
constexpr int kPoolsMax = 4096;

// The functions of librados 2 that we call, by their documented signatures; handles are opaque.
#define RADOS_FUNCTIONS(X)                                                                                  \
  X(create, int, (void** cluster, const char* id))                                                          \
  X(conf_read_file, int, (void* cluster, const char* path))                                                 \
  X(conf_set, int, (void* cluster, const char* option, const char* value))                                  \
  X(connect, int, (void* cluster))                                                                          \
  X(shutdown, void, (void* cluster))                                                                        \
  X(ioctx_create, int, (void* cluster, const char* pool, void** io))                                        \
  X(ioctx_destroy, void, (void* io))                                                                        \
  X(aio_create_completion2, int, (void* argument, void (*done)(void*, void*), void** completion))           \
  X(aio_release, void, (void* completion))                                                                  \
  X(aio_get_return_value, int, (void* completion))                                                          \
  X(aio_cancel, int, (void* io, void* completion))                                                          \
  X(aio_read, int, (void* io, const char* object, void* completion, char* buffer, size_t n, uint64_t at))   \
  X(aio_write, int, (void* io, const char* object, void* completion, const char* b, size_t n, uint64_t at)) \
  X(remove, int, (void* io, const char* object))                                                            \
  X(stat, int, (void* io, const char* object, uint64_t* bytes, time_t* changed))                            \
  X(nobjects_list_open, int, (void* io, void** list))                                                       \
  X(nobjects_list_next, int, (void* list, const char** object, const char** locator, const char** space))   \
  X(nobjects_list_close, void, (void* list))

struct Rados {
#define RADOS_MEMBER(name, result, arguments) result(*name) arguments = nullptr;
  RADOS_FUNCTIONS(RADOS_MEMBER)
#undef RADOS_MEMBER
};

Result<const Rados*> rados_library() {
  static Rados functions;
  static const std::string problem = [] {
    void* const library = ::dlopen("librados.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!library) return std::string(::dlerror());
    std::string missing;
#define RADOS_LOAD(name, result, arguments)                                                 \
  functions.name = reinterpret_cast<result(*) arguments>(::dlsym(library, "rados_" #name)); \
  if (!functions.name) missing += " rados_" #name;
    RADOS_FUNCTIONS(RADOS_LOAD)
#undef RADOS_LOAD
    return missing.empty() ? missing : "librados.so.2 lacks" + missing;
  }();
  if (!problem.empty()) return unimplemented("librados (package librados2): " + problem);
  return &functions;
}

Status status_of(int error, const std::string& what) {
  const std::string message = fmt::format("{}: {}", what, std::strerror(error));
  switch (error) {
    case ENOENT: return not_found(message);
    case ENOSPC:
    case EDQUOT: return resource_exhausted(message);
    case EIO: return corruption(message);
    default: return unavailable(message);
  }
}

// One connection for all pools.
class Cluster {
 public:
  Cluster(const Rados& functions, void* handle) : functions_(functions), handle_(handle) {}
  Cluster(const Cluster&) = delete;
  ~Cluster() { functions_.shutdown(handle_); }
  const Rados& functions() const { return functions_; }
  void* handle() const { return handle_; }

 private:
  const Rados& functions_;
  void* const handle_;
};

class PoolDevice final : public ShardDevice {
 public:
  PoolDevice(std::shared_ptr<const Cluster> cluster, std::string pool, void* io)
      : cluster_(std::move(cluster)), rados_(cluster_->functions()), pool_(std::move(pool)), io_(io) {}
  ~PoolDevice() override {
    std::unique_lock lock(mutex_);
    for (const auto& [number, operation] : running_)
      if (operation) cancel_pieces(*operation);
    all_done_.wait(lock, [this] { return running_.empty(); });
    rados_.ioctx_destroy(io_);
  }

  std::string name() const override { return "rados pool " + pool_; }

  DeviceOperation read(SegmentId segment, int64_t offset, int64_t num_bytes, PageBuffer buffer,
                       DeviceDone done) override {
    return start(segment, false, offset, num_bytes, std::move(buffer), std::move(done));
  }
  void write(SegmentId segment, int64_t offset, PageBuffer buffer, int64_t num_bytes, DeviceDone done) override {
    start(segment, true, offset, num_bytes, std::move(buffer), std::move(done));
  }

  // librados stops at about a thousand operations that a stopped device never answers: losers must be taken back.
  void cancel(DeviceOperation operation) override {
    const std::lock_guard lock(mutex_);
    const auto at = running_.find(static_cast<uint64_t>(operation));
    if (at != running_.end() && at->second) cancel_pieces(*at->second);
  }

  Result<std::vector<SegmentFile>> list() override {
    void* list = nullptr;
    if (const int error = rados_.nobjects_list_open(io_, &list); error < 0) return status_of(-error, name());
    std::map<uint64_t, int64_t> last_object;
    const char *object = nullptr, *locator = nullptr, *space = nullptr;
    int error = 0;
    while ((error = rados_.nobjects_list_next(list, &object, &locator, &space)) == 0) {
      const std::string_view text = object;
      uint64_t id = 0, number = 0;
      if (text.size() != 21 || text[16] != '.') continue;
      if (std::from_chars(text.data(), text.data() + 16, id, 16).ptr != text.data() + 16) continue;
      if (std::from_chars(text.data() + 17, text.data() + 21, number, 16).ptr != text.data() + 21) continue;
      const auto at = last_object.try_emplace(id, 0).first;
      at->second = std::max(at->second, static_cast<int64_t>(number));
    }
    rados_.nobjects_list_close(list);
    if (error != -ENOENT) return status_of(-error, name());
    std::vector<SegmentFile> files;
    for (const auto& [id, number] : last_object) {
      uint64_t bytes = 0;
      time_t changed = 0;
      const std::string last = object_name(SegmentId{id}, number);
      if (rados_.stat(io_, last.c_str(), &bytes, &changed) == 0)
        files.push_back({SegmentId{id}, number * kObjectBytes + static_cast<int64_t>(bytes)});
    }
    return files;
  }

  Status drop(SegmentId segment) override {
    Status status;
    for (int64_t number = 0; number <= kSegmentObjectsMax; ++number) {
      const int error = rados_.remove(io_, object_name(segment, number).c_str());
      if (error < 0 && error != -ENOENT) status = status_of(-error, name());
    }
    return status;
  }

 private:
  static constexpr int64_t kSegmentObjectsMax =
      (int64_t{1} << 30) / kObjectBytes + 4;  // rows, and a footer behind them

  struct Operation;
  struct Piece {
    Operation* operation = nullptr;
    void* completion = nullptr;
    int64_t at = 0, num_bytes = 0;  // in the buffer
    int start_error = 0;
  };
  struct Operation {
    PoolDevice* device = nullptr;
    uint64_t number = 0;
    bool is_write = false, cancelled = false;
    PageBuffer buffer;
    int64_t num_bytes = 0;
    DeviceDone done;
    std::vector<Piece> pieces;  // one or two
    std::atomic<int> num_left{0};
  };

  static std::string object_name(SegmentId segment, int64_t number) {
    return fmt::format("{:016x}.{:04x}", static_cast<uint64_t>(segment), number);
  }

  DeviceOperation start(SegmentId segment, bool is_write, int64_t offset, int64_t num_bytes, PageBuffer buffer,
                        DeviceDone done) {
    auto made = std::make_unique<Operation>();
    Operation* const operation = made.get();
    operation->device = this;
    operation->is_write = is_write;
    operation->buffer = std::move(buffer);
    operation->num_bytes = num_bytes;
    operation->done = std::move(done);
    for (int64_t at = 0; at < num_bytes;) {
      const int64_t left = kObjectBytes - (offset + at) % kObjectBytes;
      operation->pieces.push_back({operation, nullptr, at, std::min(left, num_bytes - at), 0});
      at += operation->pieces.back().num_bytes;
    }
    operation->num_left = static_cast<int>(operation->pieces.size()) + 1;  // one for us, until all are started
    uint64_t number = 0;
    {
      const std::lock_guard lock(mutex_);
      number = operation->number = ++num_started_;
      running_.emplace(number, std::move(made));
      for (Piece& piece : operation->pieces)
        CHECK(rados_.aio_create_completion2(&piece, finish, &piece.completion) == 0);
    }
    for (Piece& piece : operation->pieces) {
      const std::string object = object_name(segment, (offset + piece.at) / kObjectBytes);
      const auto from = static_cast<uint64_t>((offset + piece.at) % kObjectBytes);
      char* const data = reinterpret_cast<char*>(operation->buffer.data()) + piece.at;
      const auto n = static_cast<size_t>(piece.num_bytes);
      piece.start_error = is_write ? rados_.aio_write(io_, object.c_str(), piece.completion, data, n, from)
                                   : rados_.aio_read(io_, object.c_str(), piece.completion, data, n, from);
      if (piece.start_error < 0) end_piece(*operation);  // no callback comes
    }
    end_piece(*operation);
    return DeviceOperation{number};
  }

  static void finish(void*, void* argument) {
    Piece& piece = *static_cast<Piece*>(argument);
    piece.operation->device->end_piece(*piece.operation);
  }

  void end_piece(Operation& operation) {
    if (--operation.num_left > 0) return;
    DeviceReply reply;
    bool whole_so_far = true;
    for (const Piece& piece : operation.pieces) {
      const int result = piece.start_error < 0 ? piece.start_error : rados_.aio_get_return_value(piece.completion);
      if (result < 0 && reply.status.ok() && !(result == -ENOENT && reply.num_bytes > 0))
        reply.status = status_of(-result, name());
      reply.cancelled |= result == -ECANCELED;
      if (result > 0 && whole_so_far) reply.num_bytes += result;
      whole_so_far &= result == piece.num_bytes;
    }
    std::unique_ptr<Operation> own;
    {
      const std::lock_guard lock(mutex_);
      const auto at = running_.find(operation.number);
      own = std::move(at->second);
      reply.queue_depth = static_cast<int64_t>(running_.size());
    }
    for (const Piece& piece : own->pieces) rados_.aio_release(piece.completion);
    if (own->is_write) reply.num_bytes = 0;
    if (!own->cancelled) reply.buffer = std::move(own->buffer);
    else reply.num_bytes = 0;
    own->done(std::move(reply));
    const std::lock_guard lock(mutex_);
    running_.erase(own->number);
    all_done_.notify_all();
  }

  void cancel_pieces(Operation& operation) {  // under mutex_
    operation.cancelled = true;
    for (const Piece& piece : operation.pieces)
      if (piece.completion) rados_.aio_cancel(io_, piece.completion);
  }

  const std::shared_ptr<const Cluster> cluster_;
  const Rados& rados_;
  const std::string pool_;
  void* const io_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable all_done_;
  std::unordered_map<uint64_t, std::unique_ptr<Operation>> running_;  // null: its end is being told
  uint64_t num_started_ = 0;
};

Result<std::shared_ptr<const Cluster>> connect(const Rados& rados, const std::string& configuration) {
  void* handle = nullptr;
  if (rados.create(&handle, nullptr) < 0) return internal_error("librados: no cluster handle");
  auto cluster = std::make_shared<const Cluster>(rados, handle);
  if (const int error = rados.conf_read_file(handle, configuration.c_str()); error < 0)
    return invalid_argument(fmt::format("{}: {}", configuration, std::strerror(-error)));
  rados.conf_set(handle, "client_mount_timeout", "10");  // 300 s otherwise
  rados.conf_set(handle, "rados_osd_op_timeout", "0");
  if (const int error = rados.connect(handle); error < 0)
    return unavailable(fmt::format("{}: no Ceph cluster answers: {}", configuration, std::strerror(-error)));
  return cluster;
}

}  // namespace

Result<std::vector<std::unique_ptr<ShardDevice>>> open_rados(const std::string& place) {
  const size_t colon = place.rfind(':');
  if (colon == std::string::npos || colon + 1 == place.size())
    return invalid_argument(place + ": expected CONF:POOLPREFIX, such as /etc/ceph/ceph.conf:kv");
  ASSIGN_OR_RETURN(const Rados* const rados, rados_library());
  ASSIGN_OR_RETURN(const std::shared_ptr<const Cluster> cluster, connect(*rados, place.substr(0, colon)));
  std::vector<std::unique_ptr<ShardDevice>> devices;
  for (int i = 0; i < kPoolsMax; ++i) {
    const std::string pool = fmt::format("{}{}", place.substr(colon + 1), i);
    void* io = nullptr;
    if (const int error = rados->ioctx_create(cluster->handle(), pool.c_str(), &io); error == -ENOENT) break;
    else if (error < 0) return status_of(-error, "rados pool " + pool);
    devices.push_back(std::make_unique<PoolDevice>(cluster, pool, io));
  }
  if (devices.empty()) return not_found(fmt::format("no pool {}0", place.substr(colon + 1)));
  return devices;
}

}  // namespace deepinfer
