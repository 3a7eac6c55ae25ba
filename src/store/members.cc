// SPDX-License-Identifier: MIT
#include "store/members.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "base/log.h"
#include "store/driver_shard.h"
#include "store/store_target.h"

namespace deepinfer {
namespace {

constexpr size_t kNameBytesMax = 64;
constexpr size_t kMembersMax = 65'536;

bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= kNameBytesMax && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '-' || c == '_' || c == ':';
  });
}

std::string root_of(const std::string& store) { return "deepinfer/store/" + store + "/"; }

using Addresses = std::map<std::string, std::string>;  // by shard

// One member: the connection to where it is now, or none. Operations carry the number of the connection that they were
// given to, so that none is cancelled on another.
struct Seat {
  std::string name;
  std::mutex mutex;  // guards what follows
  std::string address;
  std::shared_ptr<ShardDevice> device;
  uint64_t number = 0;

  std::pair<std::shared_ptr<ShardDevice>, uint64_t> now() {
    const std::lock_guard lock(mutex);
    return {device, number};
  }
};

// Follows the table and seats the members where it says they are. Owns the lease on the store.
class MemberWatch {
 public:
  MemberWatch(std::unique_ptr<LeaseTable> table, const MemberOptions& options, FrameLoop& loop)
      : table_(std::move(table)), options_(options), loop_(loop) {}
  ~MemberWatch() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  Status open(const Clock& clock) {
    const std::string root = root_of(options_.store);
    ASSIGN_OR_RETURN(owner_, HeldLease::acquire(*table_, {root + "owner", options_.owner, kMemberLeaseNs}, clock,
                                                options_.patience_ns));
    ASSIGN_OR_RETURN(const std::vector<std::string> names, members());
    for (const std::string& name : names) {
      seats_.push_back(std::make_unique<Seat>());
      seats_.back()->name = name;
    }
    const int64_t end_ns = clock.monotonic_ns() + options_.patience_ns;
    while (num_away() > 0 && clock.monotonic_ns() < end_ns) {
      look();
      if (num_away() > 0) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    thread_ = std::thread([this] { run(); });
    return {};
  }

  std::span<const std::unique_ptr<Seat>> seats() const { return seats_; }
  bool may_write() const { return owner_->is_valid(); }

 private:
  Result<Addresses> addresses() const {
    const std::string prefix = root_of(options_.store) + "shards/";
    ASSIGN_OR_RETURN(const std::vector<LeaseHolder> holders, table_->holders(prefix));
    Addresses found;
    for (const LeaseHolder& holder : holders) found.emplace(holder.name.substr(prefix.size()), holder.value);
    return found;
  }

  // What was kept at the first opening; at that one, whoever is there.
  Result<std::vector<std::string>> members() const {
    const std::string key = root_of(options_.store) + "members";
    ASSIGN_OR_RETURN(const std::vector<LeaseHolder> kept, table_->holders(key));
    ASSIGN_OR_RETURN(const Addresses here, addresses());
    std::vector<std::string> names;
    if (!kept.empty()) {
      names = split_list(kept.front().value);
      for (const auto& [name, address] : here)
        if (std::find(names.begin(), names.end(), name) == names.end())
          log_line(LogLevel::kWarning, "a shard server registered itself that the store was made without",
                   {{"shard", name}, {"address", address}});
    } else {
      for (const auto& [name, address] : here) names.push_back(name);
    }
    if (names.size() > kMembersMax || !std::all_of(names.begin(), names.end(), is_name))
      return corruption(key + ": not a list of shard names");
    if (!kept.empty()) return names;
    if (names.size() != 1 && names.size() < 12)
      return invalid_argument(
          fmt::format("store \"{}\" is new and has {} registered shard servers: start 1 (no coding) or at least 12 "
                      "(10 + 2 coding) before it is opened first",
                      options_.store, names.size()));
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ",") + name;
    TRY(table_->keep(key, list));
    return names;
  }

  int64_t num_away() const {
    return std::count_if(seats_.begin(), seats_.end(), [](const auto& seat) { return !seat->now().first; });
  }

  // While the table cannot be asked, everyone stays where they are.
  void look() {
    const auto here = addresses();
    if (!here.ok()) return;
    for (const auto& seat : seats_) {
      const auto at = here.value().find(seat->name);
      seat_at(*seat, at == here.value().end() ? "" : at->second);
    }
    // Whoever was in a call of theirs has left it by the next look: only then may they end, and here, for a connection
    // must not end on its own event thread.
    std::erase_if(retired_, [](const auto& device) { return device.use_count() == 1; });
  }

  void seat_at(Seat& seat, const std::string& address) {
    {
      const std::lock_guard lock(seat.mutex);
      if (seat.address == address) return;
    }
    std::shared_ptr<ShardDevice> device;
    if (auto parsed = parse_shard_address(address); parsed.ok()) {
      parsed.value().security = options_.security;
      if (auto opened = open_shard(loop_, parsed.value()); opened.ok()) device = std::move(opened).value();
    }
    log_line(seat.number == 0 ? LogLevel::kDebug
             : device         ? LogLevel::kInfo
                              : LogLevel::kWarning,
             device ? "shard server is there" : "shard server is away", {{"shard", seat.name}, {"address", address}});
    const std::lock_guard lock(seat.mutex);
    if (seat.device) retired_.push_back(std::move(seat.device));
    seat.device = std::move(device);
    seat.address = address;
    ++seat.number;
  }

  void run() {
    for (;;) {
      {
        std::unique_lock lock(mutex_);
        wake_.wait_for(lock, std::chrono::nanoseconds(options_.poll_ns), [this] { return stopping_; });
        if (stopping_) return;
      }
      look();
    }
  }

  const std::unique_ptr<LeaseTable> table_;
  const MemberOptions options_;
  FrameLoop& loop_;
  std::unique_ptr<HeldLease> owner_;
  std::vector<std::unique_ptr<Seat>> seats_;           // by name
  std::vector<std::shared_ptr<ShardDevice>> retired_;  // the thread's
  std::mutex mutex_;                                   // guards stopping_
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

class MemberDevice final : public ShardDevice {
 public:
  MemberDevice(std::shared_ptr<MemberWatch> watch, Seat& seat) : watch_(std::move(watch)), seat_(seat) {}

  std::string name() const override { return seat_.name; }

  DeviceOperation read(SegmentId segment, int64_t offset, int64_t num_bytes, PageBuffer buffer,
                       DeviceDone done) override {
    const auto [device, number] = seat_.now();
    if (!device) {
      done({.status = away(), .buffer = std::move(buffer)});
      return {};
    }
    const DeviceOperation inner = device->read(segment, offset, num_bytes, std::move(buffer), std::move(done));
    return DeviceOperation{number << kNumberShift | (static_cast<uint64_t>(inner) & kInnerMask)};
  }

  void write(SegmentId segment, int64_t offset, PageBuffer buffer, int64_t num_bytes, DeviceDone done) override {
    const auto device = seat_.now().first;
    if (device && watch_->may_write())
      return device->write(segment, offset, std::move(buffer), num_bytes, std::move(done));
    done({.status = device ? unavailable(kNotOurs) : away(), .buffer = std::move(buffer)});
  }

  void cancel(DeviceOperation operation) override {
    const auto [device, number] = seat_.now();
    const auto value = static_cast<uint64_t>(operation);
    if (device && value >> kNumberShift == (number & kNumberMask)) device->cancel(DeviceOperation{value & kInnerMask});
  }

  Result<std::vector<SegmentFile>> list() override {
    const auto device = seat_.now().first;
    if (!device) return away();
    return device->list();
  }

  Status drop(SegmentId segment) override {
    const auto device = seat_.now().first;
    if (!device) return away();
    if (!watch_->may_write()) return unavailable(kNotOurs);
    return device->drop(segment);
  }

  DeviceSpace space() override {
    const auto device = seat_.now().first;
    return device ? device->space() : DeviceSpace{};
  }

 private:
  static constexpr const char* kNotOurs = "the lease on the store has run out";
  static constexpr int kNumberShift = 48;  // a connection makes less than 2^48 requests, and is one of less than 2^16
  static constexpr uint64_t kInnerMask = (uint64_t{1} << kNumberShift) - 1, kNumberMask = 0xffff;
  Status away() const { return unavailable(seat_.name + ": its lease has ended"); }

  const std::shared_ptr<MemberWatch> watch_;
  Seat& seat_;  // the watch's
};

}  // namespace

Result<MemberPlace> parse_member_place(const std::string& text) {
  MemberPlace place;
  const size_t slash = text.find('/');
  place.address = text.substr(0, slash);
  if (slash != std::string::npos) place.store = text.substr(slash + 1);
  if (!parse_shard_address(place.address).ok() || !is_name(place.store))
    return invalid_argument(text + ": expected HOST:PORT[/STORE] of an etcd server, STORE of letters, digits, . - _");
  return place;
}

Result<std::unique_ptr<HeldLease>> register_shard(LeaseTable& table, const std::string& store, const std::string& shard,
                                                  const std::string& address, const Clock& clock) {
  if (!is_name(shard))
    return invalid_argument(
        fmt::format("{}: expected a shard's name of at most {} letters, digits, . - _ :", shard, kNameBytesMax));
  return HeldLease::acquire(table, {root_of(store) + "shards/" + shard, address, kMemberLeaseNs}, clock,
                            2 * kMemberLeaseNs);
}

Result<std::vector<std::unique_ptr<ShardDevice>>> open_members(std::unique_ptr<LeaseTable> table,
                                                               const MemberOptions& options, FrameLoop& loop,
                                                               const Clock& clock) {
  auto watch = std::make_shared<MemberWatch>(std::move(table), options, loop);
  TRY(watch->open(clock));
  std::vector<std::unique_ptr<ShardDevice>> devices;
  for (const auto& seat : watch->seats()) devices.push_back(std::make_unique<MemberDevice>(watch, *seat));
  return devices;
}

}  // namespace deepinfer
