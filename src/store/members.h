// SPDX-License-Identifier: MIT
// Which shard servers a store has, as a table of leases says (lease.h), so that nobody lists addresses:
//
//   deepinfer/store/STORE/shards/SHARD   HOST:PORT, as long as that shard server lives
//   deepinfer/store/STORE/members        SHARD,SHARD,...: from the store's first opening on, for groups follow from it
//   deepinfer/store/STORE/owner          who has the store open
//
// A shard whose lease ended refuses at once instead of by time-out; one that comes back, wherever, is used again. Who
// lost the lease on what it does, does no writes (decision 13; serving.md 9.11). Thread: any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "net/frame_client.h"
#include "store/driver.h"
#include "store/lease.h"

namespace deepinfer {

// "HOST:PORT[/STORE]" of an etcd server and the store's name there.
struct MemberPlace {
  std::string address;
  std::string store = "default";
};
// Errors: invalid_argument.
Result<MemberPlace> parse_member_place(const std::string& text);

inline constexpr int64_t kMemberLeaseNs = 2'000'000'000;  // etcd grants no shorter ones

// The shard server's end. Errors: invalid_argument (a name that no key can have), unavailable (another server has that
// name; the table cannot be reached).
Result<std::unique_ptr<HeldLease>> register_shard(LeaseTable& table, const std::string& store, const std::string& shard,
                                                  const std::string& address, const Clock& clock);

struct MemberOptions {
  std::string store = "default";
  std::string owner;  // who asks, for the message that another one gets
  FrameSecurity security;
  int64_t poll_ns = 500'000'000;
  int64_t patience_ns = 5'000'000'000;  // for members that are not there yet, and for an owner that died
};

// The store's devices, by name. Takes `table` over. Errors: invalid_argument (neither 1 nor 12 and more shards where
// the store is new), unavailable (somebody else has it open; the table cannot be reached).
Result<std::vector<std::unique_ptr<ShardDevice>>> open_members(std::unique_ptr<LeaseTable> table,
                                                               const MemberOptions& options, FrameLoop& loop,
                                                               const Clock& clock);

}  // namespace deepinfer
