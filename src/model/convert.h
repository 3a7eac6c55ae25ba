// SPDX-License-Identifier: MIT
// A checkpoint written anew with its quantised matrices in one layout (tensor/packed_matrix.h), and the check that two
// checkpoints hold the same values. Shards keep their names, tensors their places and sizes; a tensor in planes has
// kPlanesSuffix behind its name, and the header's __metadata__ says so to people. Every layout converts to every other.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/status.h"
#include "base/thread_pool.h"
#include "model/checkpoint.h"
#include "tensor/packed_matrix.h"

namespace deepinfer {

// Called on the calling thread with the bytes of tensors done so far; false ends the work.
using ConvertProgress = std::function<bool(uint64_t)>;

// Writes `from` into `folder`, which is made where it is missing. Files appear under their names when they are whole,
// config.json last: before it stands nobody takes the folder for a checkpoint, and the same call again goes on behind
// the shards that are whole and whose tensors begin as those of `from`. Errors: invalid_argument where the folder holds
// a checkpoint already or `from` does not fit its configuration; unavailable (disk full, say) naming the file;
// resource_exhausted where the disk has no room for what is missing, told before anything is written, and "stopped",
// with the number of whole shards, when progress says so. What was being written is removed.
Status convert_checkpoint(const Checkpoint& from, const std::string& folder, WeightLayout layout, ThreadPool& pool,
                          const ConvertProgress& progress);

// Errors: resource_exhausted, with both sizes, where `bytes` more do not fit into the `free_bytes` of folder's disk.
Status check_room(const std::string& folder, uint64_t bytes, uint64_t free_bytes);

// Whether every matrix that can stand in either layout stands in `layout`. Errors: invalid_argument with the layout
// found, the first such tensor and the layout asked.
Status check_layout(const Checkpoint& checkpoint, WeightLayout layout);

// Whether `a` and `b` hold the same tensors with the same values, whatever layouts they stand in. Errors: corruption
// that names the first tensor that differs.
Status compare_checkpoints(const Checkpoint& a, const Checkpoint& b, ThreadPool& pool, const ConvertProgress& progress);

}  // namespace deepinfer
