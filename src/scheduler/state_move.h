// SPDX-License-Identifier: MIT
// Whole sequence states on their way between a lane and a snapshot in host memory, ordered by the scheduler and carried
// out by whoever owns the engine: when a sequence is preempted without throwing its work away, when it resumes, and
// when the choices of a request share one prompt (the first one's state is saved behind the prompt, the others start
// from it). Orders are carried out in the order given, between steps.
//   kSave     of the lane as it is after the newest step
//   kRestore  into a lane that is admitted anew for `id`; the snapshot stays
//   kDrop     the snapshot is not needed any more
//   kHandOver of the lane of a sequence that has just ended, for whoever goes on behind it one day: no snapshot is kept
// Plain values; thread: plan.
#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "kv/block_pool.h"
#include "scheduler/batch.h"

namespace deepinfer {

enum class SnapshotId : uint64_t {};

struct StateMove {
  enum class Kind { kSave, kRestore, kDrop, kHandOver };
  Kind kind{};
  SnapshotId snapshot{};
  SequenceId id{};
  int32_t lane = -1;
  int64_t position = 0;  // tokens computed
  RowLimits limits;
  std::vector<BlockId> blocks;  // whose bytes travel along, in order
  BlockKey last_full_key;       // of the last full block before the position; kHandOver only
};

// A state from outside, such as the end of an earlier turn, that a prompt begins with.
struct ResumePoint {
  SnapshotId snapshot{};  // known to whoever carries out the moves
  int64_t position = 0;   // tokens computed; below the prompt's length
};

// How a sequence gives way when blocks run out: its work is thrown away and done again, or its state goes to host
// memory and comes back.
enum class PreemptBy { kCost, kRecompute, kSnapshot };

struct SnapshotOptions {
  PreemptBy preempt_by = PreemptBy::kCost;
  int64_t bytes_max = 0;     // of all snapshots together; 0 = none are made
  int64_t record_bytes = 0;  // of a lane's private state
  int64_t block_bytes = 0;
  double bytes_per_ns = 2.0;  // of a copy with its checksum
};

// Nanoseconds of a save and a restore of a state of that many bytes.
double snapshot_ns(const SnapshotOptions& options, int64_t num_bytes);

// Whether a state of `num_bytes` that took `recompute_ns` of work is worth a snapshot, with `bytes_left` of room.
bool is_worth_a_snapshot(const SnapshotOptions& options, int64_t num_bytes, int64_t bytes_left, double recompute_ns);

}  // namespace deepinfer
