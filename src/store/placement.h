// SPDX-License-Identifier: MIT
// Which devices hold an extent (serving.md 9.5). Groups of k + m distinct devices from a balanced design: every device
// is in as many groups as any other, and any two share about the same number, so that the reads of a dead device spread
// over all the rest. An extent's group follows from its own key, not the conversation's, so a long prompt is read from
// many groups at once. Thread: values.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/block_key.h"

namespace deepinfer {

struct StoreNode {
  std::string name;
  std::string domain;  // what fails together, such as a rack; empty = the node by itself
};

using PlacementGroup = std::vector<int>;  // device indices; position = shard

// A pure function of its arguments, so every client derives the same groups from the same list. Devices of one domain
// are kept apart where there are enough domains. Errors: invalid_argument when there are fewer nodes than `width`.
Result<std::vector<PlacementGroup>> balanced_groups(std::span<const StoreNode> nodes, int64_t num_groups, int width);

// Rendezvous hashing over the groups that `usable` allows; all of them when it allows none.
int64_t group_of(const BlockKey& key, int64_t num_groups, const std::function<bool(int64_t)>& usable);

}  // namespace deepinfer
