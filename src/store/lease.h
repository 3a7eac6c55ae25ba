// SPDX-License-Identifier: MIT
// Names held for a time: who writes, who is a member. Held in etcd where several machines share a store (its JSON
// gateway over our HTTP client), in a table of this process where there is one. A holder that could not renew for half
// the lease's time must stop acting on it, before anybody else can get it (self-fencing, as 3FS does). Thread: any;
// calls to etcd block.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace deepinfer {

enum class LeaseId : int64_t {};

struct LeaseHolder {
  std::string name;   // of the lease
  std::string value;  // what the holder said: its address
};

class LeaseTable {
 public:
  virtual ~LeaseTable() = default;
  // Errors: unavailable (somebody else holds it, and who; or the table cannot be reached).
  virtual Result<LeaseId> acquire(const std::string& name, const std::string& value, int64_t ttl_ns) = 0;
  virtual Status renew(LeaseId lease) = 0;  // not_found: it has run out
  virtual Status release(LeaseId lease) = 0;
  // Leases alive, and what is kept for good, whose names begin with `prefix`, by name.
  virtual Result<std::vector<LeaseHolder>> holders(const std::string& prefix) = 0;
  // Writes a value that no lease ends, unless the name has one already.
  virtual Status keep(const std::string& name, const std::string& value) = 0;
};

std::unique_ptr<LeaseTable> make_local_leases(const Clock& clock);
// "HOST:PORT" of an etcd server. Errors: invalid_argument.
Result<std::unique_ptr<LeaseTable>> make_etcd_leases(const std::string& address);

struct LeaseWish {
  std::string name, value;
  int64_t ttl_ns = 0;
};

// A lease kept alive by a thread of its own until it is destroyed (which gives it back). One that ran out, because its
// holder or the table stood still, is acquired anew as soon as nobody else has it; until then it is not valid.
class HeldLease {
 public:
  // Waits up to `patience_ns` for another holder to go: one that died a moment ago has its lease still.
  static Result<std::unique_ptr<HeldLease>> acquire(LeaseTable& table, const LeaseWish& wish, const Clock& clock,
                                                    int64_t patience_ns = 0);
  ~HeldLease();
  bool is_valid() const;  // renewed within half its time

 private:
  HeldLease(LeaseTable& table, LeaseId lease, const LeaseWish& wish, int64_t asked_ns, const Clock& clock);
  void keep();
  bool renew();
  LeaseTable& table_;
  LeaseId lease_;  // the thread's
  const LeaseWish wish_;
  const Clock& clock_;
  mutable std::mutex mutex_;  // guards renewed_ns_ and stopping_
  std::condition_variable wake_;
  int64_t renewed_ns_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace deepinfer
