// SPDX-License-Identifier: MIT
// A sequence as one run of bytes that can be kept, sent and continued elsewhere: what it is (tokens, sampler position,
// limits), its lane record, the keys and, where they travel along, the bytes of its blocks. Versioned; every part and
// the head have a CRC-32C. Used for preemption and hand-off; the store keeps records and blocks in its own layout.
//
// Layout, little-endian: a head of kSequenceFrameHeadBytes, then the parts without gaps in the order of the head's
// table. The head's last word is its own checksum.
//
//   0   magic "DISEQFRM"        8  version u32          12  record kind u32       16  bytes of the whole frame u64
//   24  seed u64                32 choice u32           36  blocks u32            40  bytes of a block u64
//   48  prompt tokens u64       56 computed tokens u64  64  four row limits i64   96  seven x (bytes u64, crc32c u32)
//   180 crc32c of bytes 0 .. 179
//
// Parts: model, layout (text), tokens, drafts (int32), confidences (fp32), block keys (2 x u64 each), record and
// blocks. Thread: values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "engine/lane_record.h"
#include "kv/block_pool.h"

namespace deepinfer {

class Engine;

inline constexpr uint32_t kSequenceFrameVersion = 1;
inline constexpr size_t kSequenceFrameHeadBytes = 184;
inline constexpr int64_t kFrameTokensMax = int64_t{1} << 24;  // of a sequence
inline constexpr size_t kFrameNameBytesMax = 1024;            // model and layout

struct SequenceFrame {
  std::string model;   // revision of the checkpoint
  std::string layout;  // Engine::state_layout()
  LaneRecordKind kind = LaneRecordKind::kFull;
  LaneMoment moment;
  uint64_t seed = 0;  // of the sampler; its output position is the number of tokens behind the prompt
  uint32_t choice = 0;
  int64_t num_prompt_tokens = 0;
  std::vector<TokenId> tokens;  // prompt, then output; at least moment.position of them
  std::vector<TokenId> drafts;  // proposed after the last token
  std::vector<float> confidences;
  std::vector<BlockKey> keys;  // of its full blocks, as far as known
  int64_t num_blocks = 0, block_bytes = 0;
  std::span<const uint8_t> record, blocks;  // borrowed; blocks [num_blocks][block_bytes], or empty
};

std::vector<uint8_t> encode_sequence_frame(const SequenceFrame& frame);

// `record` and `blocks` of the result point into `bytes`. Errors: unimplemented for another version, corruption for
// anything that was not written by encode_sequence_frame (truncated, a flipped bit, counts that do not fit).
Result<SequenceFrame> decode_sequence_frame(std::span<const uint8_t> bytes);

// Whether `engine`, running `model`, can continue it. Errors: invalid_argument naming both sides of what differs.
Status check_sequence_frame(const SequenceFrame& frame, const Engine& engine, const std::string& model);

// Both ways at once. `frame` says who the sequence is; record, blocks and layout are filled from the engine; with
// `blocks` their bytes travel along. Errors: of Engine::export_lane.
Result<std::vector<uint8_t>> export_sequence(const Engine& engine, int32_t lane, SequenceFrame frame,
                                             std::span<const BlockId> blocks);
// The lane has been admitted for the sequence. Writes frame.blocks into `blocks` (as many, or the frame has none).
Status import_sequence(Engine& engine, int32_t lane, const SequenceFrame& frame, std::span<const BlockId> blocks);

}  // namespace deepinfer
