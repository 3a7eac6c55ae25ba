// SPDX-License-Identifier: MIT
// Everything that is private to a running sequence, as a run of bytes that does not depend on the engine's limits
// (decision 25): what a lane holds at position n, that is when tokens [0, n) have been computed.
//
//   window rings   [layer][window][window_row_bytes]: positions n - window .. n - 1, oldest first. kTail has the layers
//                  up to the last kv source, kFull all of them and the draft layers.
//   kFull only:
//   tails          [kv source of ratio > 1][ratio - 1][2 * head_dim] fp32: the rows of the open compression group
//   look-back      [look_back - 1] x (int32 token, uint32 flags), newest first, where the model has Engram
//
// Positions below 0, below the sequence's window_begin and rows of a closed group are zeros, so equal states are equal
// bytes. For the released model kTail has 1,419,264 bytes and kFull 2,918,424. Blocks of global KV travel apart.
// Thread: the layout is a value; the calls belong to the engine's caller.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/status.h"
#include "model/cache_layout.h"
#include "scheduler/batch.h"

namespace deepinfer {

enum class LaneRecordKind : uint32_t { kTail = 1, kFull = 2 };
const char* to_string(LaneRecordKind kind);

// When a lane is recorded: `position` tokens have been computed, under these limits.
struct LaneMoment {
  int64_t position = 0;
  RowLimits limits;
  bool operator==(const LaneMoment&) const = default;
};

class LaneRecordLayout {
 public:
  LaneRecordLayout() = default;
  // `look_back`: tokens an n-gram sees, the newest included; 0 for a model without Engram.
  LaneRecordLayout(const CacheLayout& caches, int num_encoder_layers, int look_back);

  int64_t bytes(LaneRecordKind kind) const;
  int64_t ring_bytes() const { return window_ * row_bytes_; }  // of one layer
  int num_rings(LaneRecordKind kind) const { return kind == LaneRecordKind::kTail ? num_encoder_layers_ : num_layers_; }
  int num_encoder_layers() const { return num_encoder_layers_; }
  int64_t window() const { return window_; }
  int num_known_tokens() const { return num_known_tokens_; }

 private:
  int num_layers_ = 0, num_encoder_layers_ = 0, num_known_tokens_ = 0;
  int64_t window_ = 0, row_bytes_ = 0, tail_bytes_ = 0;
};

}  // namespace deepinfer
