// SPDX-License-Identifier: MIT
// Reads a model's weights from its files before a step asks for them, with all threads: without it the first requests
// find the files page by page. Where the machine has several memory nodes the threads, and so the pages, are spread
// over them, as the reads of later steps are. Engram tables are left on disk: a step prefetches its rows. Thread: one
// caller; the pool's threads read.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "model/weights.h"

namespace deepinfer {

// What is to be read, in pieces of at most 4 MiB, in the order of the files. `with_experts` false leaves out the routed
// experts (they have a cache of their own, expert_residency.h).
std::vector<std::span<const uint8_t>> first_touch_pieces(const ModelWeights& weights, bool with_experts);

// `progress` is called on the calling thread with the bytes read so far and in all; false ends the work. Whether all
// was read.
bool first_touch(std::span<const std::span<const uint8_t>> pieces, ThreadPool& pool,
                 const std::function<bool(int64_t, int64_t)>& progress);

}  // namespace deepinfer
