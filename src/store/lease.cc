// SPDX-License-Identifier: MIT
#include "store/lease.h"

#include <chrono>
#include <map>

namespace deepinfer {
namespace {

class LocalLeases final : public LeaseTable {
 public:
  explicit LocalLeases(const Clock& clock) : clock_(clock) {}

  Result<LeaseId> acquire(const std::string& name, const std::string& value, int64_t ttl_ns) override {
    const std::lock_guard lock(mutex_);
    expire();
    if (const auto at = held_.find(name); at != held_.end()) return unavailable(name + ": held by " + at->second.value);
    const LeaseId id{++num_made_};
    held_[name] = {id, value, ttl_ns, clock_.monotonic_ns() + ttl_ns};
    return id;
  }
  Status keep(const std::string& name, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    expire();
    held_.try_emplace(name, Held{.value = value, .end_ns = INT64_MAX});
    return {};
  }
  Status renew(LeaseId lease) override {
    const std::lock_guard lock(mutex_);
    expire();
    for (auto& [name, held] : held_) {
      if (held.id != lease) continue;
      held.end_ns = clock_.monotonic_ns() + held.ttl_ns;
      return {};
    }
    return not_found("the lease has run out");
  }
  Status release(LeaseId lease) override {
    const std::lock_guard lock(mutex_);
    std::erase_if(held_, [&](const auto& item) { return item.second.id == lease; });
    return {};
  }
  Result<std::vector<LeaseHolder>> holders(const std::string& prefix) override {
    const std::lock_guard lock(mutex_);
    expire();
    std::vector<LeaseHolder> found;
    for (const auto& [name, held] : held_)
      if (name.starts_with(prefix)) found.push_back({name, held.value});
    return found;
  }

 private:
  struct Held {
    LeaseId id{};
    std::string value;
    int64_t ttl_ns = 0, end_ns = 0;
  };
  void expire() {  // under mutex_
    std::erase_if(held_, [now = clock_.monotonic_ns()](const auto& item) { return item.second.end_ns <= now; });
  }
  const Clock& clock_;
  std::mutex mutex_;  // guards what follows
  std::map<std::string, Held> held_;
  int64_t num_made_ = 0;
};

}  // namespace

std::unique_ptr<LeaseTable> make_local_leases(const Clock& clock) { return std::make_unique<LocalLeases>(clock); }

Result<std::unique_ptr<HeldLease>> HeldLease::acquire(LeaseTable& table, const LeaseWish& wish, const Clock& clock,
                                                      int64_t patience_ns) {
  const int64_t end_ns = clock.monotonic_ns() + patience_ns;
  for (;;) {
    const int64_t asked_ns = clock.monotonic_ns();
    const auto lease = table.acquire(wish.name, wish.value, wish.ttl_ns);
    if (lease.ok()) return std::unique_ptr<HeldLease>(new HeldLease(table, lease.value(), wish, asked_ns, clock));
    if (clock.monotonic_ns() >= end_ns) return lease.status();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

// Grants and renewals count from the moment they were asked for, so the table never gives up a lease that we still
// trust.
HeldLease::HeldLease(LeaseTable& table, LeaseId lease, const LeaseWish& wish, int64_t asked_ns, const Clock& clock)
    : table_(table), lease_(lease), wish_(wish), clock_(clock), renewed_ns_(asked_ns), thread_([this] { keep(); }) {}

HeldLease::~HeldLease() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  (void)table_.release(lease_).ok();
}

bool HeldLease::is_valid() const {
  const std::lock_guard lock(mutex_);
  return clock_.monotonic_ns() - renewed_ns_ < wish_.ttl_ns / 2;
}

bool HeldLease::renew() {
  const Status renewed = table_.renew(lease_);
  if (renewed.code() != StatusCode::kNotFound) return renewed.ok();
  const auto again = table_.acquire(wish_.name, wish_.value, wish_.ttl_ns);
  if (again.ok()) lease_ = again.value();
  return again.ok();
}

void HeldLease::keep() {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, std::chrono::nanoseconds(wish_.ttl_ns / 6), [this] { return stopping_; });
      if (stopping_) return;
    }
    const int64_t asked_ns = clock_.monotonic_ns();
    if (!renew()) continue;
    const std::lock_guard lock(mutex_);
    renewed_ns_ = asked_ns;
  }
}

}  // namespace deepinfer
