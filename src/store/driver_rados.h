// SPDX-License-Identifier: MIT
// The `rados` driver: an existing Ceph cluster used as plain shard devices, one pool of size 1 on each device, through
// librados' C interface, opened at run time. Coding, hedging and cancellation stay with us, because a pool that codes
// by itself stalls with its slowest device (serving.md 9.10). scripts/ceph_test_cluster makes such pools on one
// machine. Thread: any.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "store/driver.h"

namespace deepinfer {

// "CONF:POOLPREFIX": a Ceph configuration file, and pools POOLPREFIX0, POOLPREFIX1, ... as many as there are. Errors:
// unimplemented (no librados on this machine), unavailable (no cluster answers in 10 s), not_found (no such pool).
Result<std::vector<std::unique_ptr<ShardDevice>>> open_rados(const std::string& place);

}  // namespace deepinfer
