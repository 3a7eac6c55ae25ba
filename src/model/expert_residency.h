// SPDX-License-Identifier: MIT
// An expert cache for checkpoints larger than memory: the bytes of the routed experts that are read, at most a budget
// of them at once, the least recently used given back first. Experts stay where the checkpoint's file map has them, so
// a reader needs no other pointer; what the cache does is to read a missing expert whole and at once (instead of one
// page fault after the other) and to tell the system which ones it may forget. Results never depend on it. Thread: one
// caller; the pool's threads read.
#pragma once

#include <cstdint>
#include <list>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "model/weights.h"

namespace deepinfer {

struct ExpertTraffic {
  int64_t hits = 0, misses = 0;
  int64_t bytes_read = 0;      // of missing experts: from the file, if the system had forgotten them too
  int64_t bytes_resident = 0;  // of experts in the cache
};

class ExpertResidency {
 public:
  // Spans of one expert's bytes: codes and scales of its three matrices. Borrowed.
  using Pieces = std::vector<std::span<const uint8_t>>;

  explicit ExpertResidency(int64_t budget_bytes) : budget_bytes_(budget_bytes) {}
  // All routed experts of the model, draft layers after the backbone's.
  static ExpertResidency of(const WeightViews& weights, int64_t budget_bytes);

  void add_layer(std::vector<Pieces> experts) { layers_.push_back(make_layer(std::move(experts))); }

  // Reads those that are missing; all of them stay until the next call, whatever the budget. Experts ascending.
  void require(int layer, std::span<const int32_t> experts, ThreadPool* pool);
  const ExpertTraffic& traffic() const { return traffic_; }

 private:
  struct Place {
    int layer, expert;
  };
  struct Expert {
    Pieces pieces;
    int64_t bytes = 0;
    uint64_t last_use = 0;
    bool is_resident = false;
    std::list<Place>::iterator place;
  };
  static std::vector<Expert> make_layer(std::vector<Pieces> experts);
  void forget_oldest();

  int64_t budget_bytes_;
  std::vector<std::vector<Expert>> layers_;
  std::list<Place> used_;  // resident experts, the least recently used first
  uint64_t now_ = 0;
  ExpertTraffic traffic_;
};

}  // namespace deepinfer
