// SPDX-License-Identifier: MIT
// Reads every byte of a checkpoint and names the tensors that hold a NaN: a scale of 255, an e4m3 code 0x7F or 0xFF, a
// NaN of BF16 or F32.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "model/checkpoint.h"

namespace deepinfer {

// One sentence for each such tensor, in file order. `progress` is called on the calling thread with the bytes read so
// far; when it gives false the check ends early.
std::vector<std::string> find_nan_tensors(const Checkpoint& checkpoint, ThreadPool& pool,
                                          const std::function<bool(uint64_t)>& progress);

}  // namespace deepinfer
