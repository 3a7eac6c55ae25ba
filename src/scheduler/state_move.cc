// SPDX-License-Identifier: MIT
#include "scheduler/state_move.h"

namespace deepinfer {

double snapshot_ns(const SnapshotOptions& options, int64_t num_bytes) {
  return 2.0 * static_cast<double>(num_bytes) / options.bytes_per_ns;
}

// A recompute also takes rows from other prompts, a copy takes none; so on a tie the copy wins.
bool is_worth_a_snapshot(const SnapshotOptions& options, int64_t num_bytes, int64_t bytes_left, double recompute_ns) {
  if (num_bytes > bytes_left || options.preempt_by == PreemptBy::kRecompute) return false;
  return options.preempt_by == PreemptBy::kSnapshot || snapshot_ns(options, num_bytes) <= recompute_ns;
}

}  // namespace deepinfer
