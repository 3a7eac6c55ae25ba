// SPDX-License-Identifier: MIT
// Carries out the scheduler's state moves: lanes into frames in host memory and back. Thread: the loop's, while no step
// is under way.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/engine.h"
#include "engine/sequence_frame.h"
#include "scheduler/state_move.h"

namespace deepinfer {

class SnapshotStore {
 public:
  // What is known of a sequence beside its state: tokens (prompt and output), seed, choice.
  using Describe = std::function<SequenceFrame(SequenceId id)>;
  // Admits the sequence to the lane, as at its first start, with its output so far.
  using Admit = std::function<Status(SequenceId id, int32_t lane)>;

  SnapshotStore(Engine& engine, std::string model) : engine_(engine), model_(std::move(model)) {}

  // The saves among `moves`: before anything writes the lanes and blocks they name. Errors: the device's.
  Status save(std::span<const StateMove> moves, const Describe& describe);
  // Of a state from outside, which check_sequence_frame() took: for a kRestore to come.
  void adopt(SnapshotId snapshot, std::vector<uint8_t> frame);
  void drop(SnapshotId snapshot);
  // The restores and drops, in order. Errors: corruption or invalid_argument (a record that is none, or another
  // engine's), those of `admit`, the device's.
  Status restore(std::span<const StateMove> moves, const Admit& admit);

  int64_t num_bytes() const { return num_bytes_; }  // held now

 private:
  Engine& engine_;
  std::string model_;
  std::unordered_map<uint64_t, std::vector<uint8_t>> frames_;
  int64_t num_bytes_ = 0;
};

}  // namespace deepinfer
