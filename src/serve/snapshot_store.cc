// SPDX-License-Identifier: MIT
#include "serve/snapshot_store.h"

#include "base/check.h"

namespace deepinfer {

Status SnapshotStore::save(std::span<const StateMove> moves, const Describe& describe) {
  for (const StateMove& move : moves) {
    if (move.kind != StateMove::Kind::kSave) continue;
    SequenceFrame frame = describe(move.id);
    frame.model = model_;
    frame.moment = {move.position, move.limits};
    ASSIGN_OR_RETURN(std::vector<uint8_t> bytes, export_sequence(engine_, move.lane, std::move(frame), move.blocks));
    num_bytes_ += static_cast<int64_t>(bytes.size());
    CHECK(frames_.emplace(static_cast<uint64_t>(move.snapshot), std::move(bytes)).second);
  }
  return {};
}

void SnapshotStore::adopt(SnapshotId snapshot, std::vector<uint8_t> frame) {
  num_bytes_ += static_cast<int64_t>(frame.size());
  CHECK(frames_.emplace(static_cast<uint64_t>(snapshot), std::move(frame)).second);
}

void SnapshotStore::drop(SnapshotId snapshot) {
  const auto at = frames_.find(static_cast<uint64_t>(snapshot));
  CHECK(at != frames_.end());
  num_bytes_ -= static_cast<int64_t>(at->second.size());
  frames_.erase(at);
}

Status SnapshotStore::restore(std::span<const StateMove> moves, const Admit& admit) {
  for (const StateMove& move : moves) {
    if (move.kind == StateMove::Kind::kDrop) drop(move.snapshot);
    if (move.kind != StateMove::Kind::kRestore) continue;
    const auto at = frames_.find(static_cast<uint64_t>(move.snapshot));
    CHECK(at != frames_.end());
    ASSIGN_OR_RETURN(const SequenceFrame frame, decode_sequence_frame(at->second));
    TRY(check_sequence_frame(frame, engine_, model_));
    CHECK(frame.moment.position == move.position);
    TRY(admit(move.id, move.lane));
    TRY(import_sequence(engine_, move.lane, frame, move.blocks));
  }
  return {};
}

}  // namespace deepinfer
