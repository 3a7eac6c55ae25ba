// SPDX-License-Identifier: MIT
#include "store/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>

namespace deepinfer {
namespace {

uint64_t mix(uint64_t x) {  // finaliser of MurmurHash3
  x = (x ^ (x >> 33)) * 0xff51afd7ed558ccd;
  x = (x ^ (x >> 33)) * 0xc4ceb9fe1a85ec53;
  return x ^ (x >> 33);
}

// Greedy: each place goes to the node that shares fewest groups with those chosen already, then to the least loaded;
// ties by a hash, so that no node is favoured.
class Design {
 public:
  explicit Design(std::span<const StoreNode> nodes)
      : num_nodes_(nodes.size()), load_(nodes.size()), pairs_(nodes.size() * nodes.size()) {
    std::unordered_map<std::string, int> ids;
    for (const StoreNode& node : nodes) {
      const std::string domain = node.domain.empty() ? "node " + node.name : node.domain;
      domain_.push_back(ids.emplace(domain, static_cast<int>(ids.size())).first->second);
    }
    num_domains_ = ids.size();
  }

  PlacementGroup next(int width, uint64_t number) {
    PlacementGroup group;
    while (static_cast<int>(group.size()) < width) group.push_back(best(group, width, number));
    for (const int a : group) {
      ++load_[static_cast<size_t>(a)];
      for (const int b : group)
        if (a != b) ++pairs_[static_cast<size_t>(a) * num_nodes_ + static_cast<size_t>(b)];
    }
    return group;
  }

 private:
  int best(const PlacementGroup& group, int width, uint64_t number) const {
    const bool apart = num_domains_ >= static_cast<size_t>(width);
    int chosen = -1;
    std::array<uint64_t, 3> least{};
    for (size_t i = 0; i < num_nodes_; ++i) {
      uint64_t shared = 0;
      bool allowed = true;
      for (const int other : group) {
        if (other == static_cast<int>(i)) allowed = false;
        if (apart && domain_[static_cast<size_t>(other)] == domain_[i]) allowed = false;
        const uint64_t count = pairs_[i * num_nodes_ + static_cast<size_t>(other)];
        shared += count * count;
      }
      if (!allowed) continue;
      const std::array<uint64_t, 3> price =
          group.empty() ? std::array<uint64_t, 3>{load_[i], 0, mix(number * 65'537 + i)}
                        : std::array<uint64_t, 3>{shared + load_[i] * load_[i], load_[i], mix(number * 65'537 + i)};
      if (chosen >= 0 && price >= least) continue;
      chosen = static_cast<int>(i);
      least = price;
    }
    return chosen;
  }

  size_t num_nodes_, num_domains_ = 0;
  std::vector<int> domain_;
  std::vector<uint64_t> load_, pairs_;
};

}  // namespace

Result<std::vector<PlacementGroup>> balanced_groups(std::span<const StoreNode> nodes, int64_t num_groups, int width) {
  if (static_cast<int>(nodes.size()) < width)
    return invalid_argument(fmt::format("a placement group needs {} devices, found {}", width, nodes.size()));
  std::vector<PlacementGroup> groups;
  if (static_cast<int>(nodes.size()) == width) {  // there is one way to choose them
    groups.emplace_back();
    for (int i = 0; i < width; ++i) groups.back().push_back(i);
    return groups;
  }
  Design design(nodes);
  for (int64_t g = 0; g < num_groups; ++g) groups.push_back(design.next(width, static_cast<uint64_t>(g)));
  return groups;
}

int64_t group_of(const BlockKey& key, int64_t num_groups, const std::function<bool(int64_t)>& usable) {
  int64_t chosen = -1;
  uint64_t most = 0;
  for (int pass = 0; pass < 2 && chosen < 0; ++pass)
    for (int64_t g = 0; g < num_groups; ++g) {
      if (pass == 0 && usable && !usable(g)) continue;
      const uint64_t weight = mix(key.low ^ mix(key.high + static_cast<uint64_t>(g) * 0x9e3779b97f4a7c15));
      if (chosen >= 0 && weight <= most) continue;
      chosen = g;
      most = weight;
    }
  return chosen;
}

}  // namespace deepinfer
