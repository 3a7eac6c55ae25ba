// SPDX-License-Identifier: MIT
#include "engine/sequence_frame.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/crc32c.h"
#include "engine/engine.h"

namespace deepinfer {
namespace {

static_assert(std::endian::native == std::endian::little);
static_assert(sizeof(BlockKey) == 16 && sizeof(TokenId) == 4);

constexpr std::array<uint8_t, 8> kMagic = {'D', 'I', 'S', 'E', 'Q', 'F', 'R', 'M'};
constexpr size_t kNumParts = 7;
enum Part : size_t { kModel, kLayout, kTokens, kDrafts, kConfidences, kKeys, kState };
constexpr const char* kPartNames[kNumParts] = {"model", "layout", "tokens", "drafts", "confidences", "keys", "state"};

struct PartHead {
  uint32_t bytes_low = 0, bytes_high = 0, checksum = 0;  // 12 bytes without padding
  uint64_t bytes() const { return bytes_low | uint64_t{bytes_high} << 32; }
};

struct Head {
  std::array<uint8_t, 8> magic = kMagic;
  uint32_t version = kSequenceFrameVersion;
  uint32_t kind = 0;
  uint64_t total_bytes = 0;
  uint64_t seed = 0;
  uint32_t choice = 0;
  uint32_t num_blocks = 0;
  uint64_t block_bytes = 0;
  uint64_t num_prompt_tokens = 0, num_computed_tokens = 0;
  int64_t limits[4] = {};
  PartHead parts[kNumParts];
  uint32_t checksum = 0;
};
static_assert(sizeof(Head) == kSequenceFrameHeadBytes && offsetof(Head, parts) == 96 &&
              offsetof(Head, checksum) == kSequenceFrameHeadBytes - 4);

uint32_t head_checksum(const Head& head) {
  return crc32c({reinterpret_cast<const uint8_t*>(&head), offsetof(Head, checksum)});
}

template <typename T>
std::span<const uint8_t> bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(T)};
}
std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

template <typename T>
Status parse_values(const char* name, std::span<const uint8_t> part, size_t most, std::vector<T>& out) {
  if (part.size() % sizeof(T) != 0 || part.size() / sizeof(T) > most)
    return corruption(std::string("sequence frame: ") + name + " has " + std::to_string(part.size()) + " bytes");
  out.resize(part.size() / sizeof(T));
  if (!part.empty()) std::memcpy(out.data(), part.data(), part.size());
  return {};
}

Status parse_text(const char* name, std::span<const uint8_t> part, std::string& out) {
  if (part.size() > kFrameNameBytesMax)
    return corruption(std::string("sequence frame: ") + name + " has " + std::to_string(part.size()) + " bytes");
  out.assign(part.begin(), part.end());
  return {};
}

Result<Head> parse_head(std::span<const uint8_t> bytes) {
  Head head;
  if (bytes.size() < sizeof(Head))
    return corruption("sequence frame: " + std::to_string(bytes.size()) + " bytes, the head alone has " +
                      std::to_string(sizeof(Head)));
  std::memcpy(&head, bytes.data(), sizeof(Head));
  if (head.magic != kMagic) return corruption("sequence frame: it does not begin with DISEQFRM");
  // Every version has its number here; where the checksum stands is this version's business.
  if (head.version != kSequenceFrameVersion)
    return unimplemented("sequence frame: version " + std::to_string(head.version) + ", this build reads version " +
                         std::to_string(kSequenceFrameVersion));
  if (head.checksum != head_checksum(head)) return corruption("sequence frame: the head's checksum is wrong");
  if (head.total_bytes != bytes.size())
    return corruption("sequence frame: " + std::to_string(bytes.size()) + " bytes of " +
                      std::to_string(head.total_bytes));
  return head;
}

using Parts = std::array<std::span<const uint8_t>, kNumParts>;

Result<Parts> split_parts(const Head& head, std::span<const uint8_t> bytes) {
  Parts parts;
  size_t at = sizeof(Head);
  for (size_t i = 0; i < kNumParts; ++i) {
    const uint64_t size = head.parts[i].bytes();
    if (size > bytes.size() - at)
      return corruption(std::string("sequence frame: ") + kPartNames[i] + " ends outside the frame");
    parts[i] = bytes.subspan(at, static_cast<size_t>(size));
    at += static_cast<size_t>(size);
    if (crc32c(parts[i]) != head.parts[i].checksum)
      return corruption(std::string("sequence frame: the checksum of ") + kPartNames[i] + " is wrong");
  }
  if (at != bytes.size()) return corruption("sequence frame: bytes behind the last part");
  return parts;
}

Status check_counts(const SequenceFrame& frame, const Head& head) {
  const uint64_t num_tokens = frame.tokens.size();
  if (head.kind != static_cast<uint32_t>(LaneRecordKind::kTail) &&
      head.kind != static_cast<uint32_t>(LaneRecordKind::kFull))
    return corruption("sequence frame: record kind " + std::to_string(head.kind));
  if (head.num_prompt_tokens > num_tokens || head.num_computed_tokens > num_tokens)
    return corruption("sequence frame: " + std::to_string(head.num_prompt_tokens) + " prompt and " +
                      std::to_string(head.num_computed_tokens) + " computed tokens of " + std::to_string(num_tokens));
  for (const int64_t limit : head.limits)
    if (limit < 0 || limit > kFrameTokensMax) return corruption("sequence frame: a row limit is out of range");
  if (frame.drafts.size() != frame.confidences.size())
    return corruption("sequence frame: drafts and confidences differ in number");
  for (const TokenId token : frame.tokens)
    if (token < 0) return corruption("sequence frame: token " + std::to_string(token));
  for (const TokenId token : frame.drafts)
    if (token < 0) return corruption("sequence frame: draft " + std::to_string(token));
  return {};
}

}  // namespace

std::vector<uint8_t> encode_sequence_frame(const SequenceFrame& frame) {
  CHECK(frame.model.size() <= kFrameNameBytesMax && frame.layout.size() <= kFrameNameBytesMax);
  CHECK(frame.blocks.empty() || static_cast<int64_t>(frame.blocks.size()) == frame.num_blocks * frame.block_bytes);
  Head head;
  head.kind = static_cast<uint32_t>(frame.kind);
  head.seed = frame.seed;
  head.choice = frame.choice;
  head.num_blocks = frame.blocks.empty() ? 0 : static_cast<uint32_t>(frame.num_blocks);
  head.block_bytes = static_cast<uint64_t>(frame.block_bytes);
  head.num_prompt_tokens = static_cast<uint64_t>(frame.num_prompt_tokens);
  head.num_computed_tokens = static_cast<uint64_t>(frame.moment.position);
  const RowLimits& limits = frame.moment.limits;
  const int64_t values[] = {limits.decoder_begin, limits.window_begin, limits.decoder_window_begin,
                            limits.global_kv_begin};
  std::copy(std::begin(values), std::end(values), head.limits);
  std::vector<uint8_t> state(frame.record.begin(), frame.record.end());
  state.insert(state.end(), frame.blocks.begin(), frame.blocks.end());
  const Parts parts = {bytes_of(frame.model),  bytes_of(frame.layout),      bytes_of(frame.tokens),
                       bytes_of(frame.drafts), bytes_of(frame.confidences), bytes_of(frame.keys),
                       bytes_of(state)};
  head.total_bytes = sizeof(Head);
  for (size_t i = 0; i < kNumParts; ++i) {
    head.parts[i] = {static_cast<uint32_t>(parts[i].size()), static_cast<uint32_t>(uint64_t{parts[i].size()} >> 32),
                     crc32c(parts[i])};
    head.total_bytes += parts[i].size();
  }
  head.checksum = head_checksum(head);
  std::vector<uint8_t> out(static_cast<size_t>(head.total_bytes));
  std::memcpy(out.data(), &head, sizeof(Head));
  size_t at = sizeof(Head);
  for (const auto& part : parts) {
    if (!part.empty()) std::memcpy(out.data() + at, part.data(), part.size());
    at += part.size();
  }
  return out;
}

Result<SequenceFrame> decode_sequence_frame(std::span<const uint8_t> bytes) {
  ASSIGN_OR_RETURN(const Head head, parse_head(bytes));
  ASSIGN_OR_RETURN(const Parts parts, split_parts(head, bytes));
  SequenceFrame frame;
  TRY(parse_text("model", parts[kModel], frame.model));
  TRY(parse_text("layout", parts[kLayout], frame.layout));
  TRY(parse_values("tokens", parts[kTokens], static_cast<size_t>(kFrameTokensMax), frame.tokens));
  TRY(parse_values("drafts", parts[kDrafts], static_cast<size_t>(kDraftTokensMax), frame.drafts));
  TRY(parse_values("confidences", parts[kConfidences], static_cast<size_t>(kDraftTokensMax), frame.confidences));
  TRY(parse_values("keys", parts[kKeys], static_cast<size_t>(kFrameTokensMax), frame.keys));
  TRY(check_counts(frame, head));
  frame.kind = static_cast<LaneRecordKind>(head.kind);
  frame.seed = head.seed;
  frame.choice = head.choice;
  frame.num_prompt_tokens = static_cast<int64_t>(head.num_prompt_tokens);
  frame.moment = {static_cast<int64_t>(head.num_computed_tokens),
                  {head.limits[0], head.limits[1], head.limits[2], head.limits[3]}};
  const uint64_t state_bytes = parts[kState].size();
  if (head.num_blocks > 0 && (head.block_bytes == 0 || head.block_bytes > state_bytes / head.num_blocks))
    return corruption("sequence frame: " + std::to_string(head.num_blocks) + " blocks of " +
                      std::to_string(head.block_bytes) + " bytes in " + std::to_string(state_bytes));
  const uint64_t record_bytes = state_bytes - head.num_blocks * head.block_bytes;
  frame.num_blocks = head.num_blocks;
  frame.block_bytes = static_cast<int64_t>(head.block_bytes);
  frame.record = parts[kState].first(static_cast<size_t>(record_bytes));
  frame.blocks = parts[kState].subspan(static_cast<size_t>(record_bytes));
  return frame;
}

Status check_sequence_frame(const SequenceFrame& frame, const Engine& engine, const std::string& model) {
  if (frame.model != model)
    return invalid_argument("sequence frame: it is of model '" + frame.model + "', this engine runs '" + model + "'");
  if (frame.layout != engine.state_layout())
    return invalid_argument("sequence frame: its state is '" + frame.layout + "', this engine has '" +
                            engine.state_layout() + "'");
  if (static_cast<int64_t>(frame.record.size()) != engine.lane_record_bytes(frame.kind))
    return invalid_argument("sequence frame: a " + std::string(to_string(frame.kind)) + " record of " +
                            std::to_string(frame.record.size()) + " bytes, this engine's has " +
                            std::to_string(engine.lane_record_bytes(frame.kind)));
  if (frame.num_blocks > 0 && frame.block_bytes != engine.cache_layout().block_bytes)
    return invalid_argument("sequence frame: blocks of " + std::to_string(frame.block_bytes) +
                            " bytes, this engine's have " + std::to_string(engine.cache_layout().block_bytes));
  for (const TokenId token : frame.tokens)
    if (token >= engine.config().vocab_size)
      return invalid_argument("sequence frame: token " + std::to_string(token) + " of a vocabulary of " +
                              std::to_string(engine.config().vocab_size));
  return {};
}

Result<std::vector<uint8_t>> export_sequence(const Engine& engine, int32_t lane, SequenceFrame frame,
                                             std::span<const BlockId> blocks) {
  const size_t block_bytes = static_cast<size_t>(engine.cache_layout().block_bytes);
  std::vector<uint8_t> record(static_cast<size_t>(engine.lane_record_bytes(frame.kind)));
  TRY(engine.export_lane(lane, frame.moment, frame.kind, record));
  std::vector<uint8_t> block_data(blocks.size() * block_bytes);
  for (size_t i = 0; i < blocks.size(); ++i)
    TRY(engine.read_block(blocks[i], std::span(block_data).subspan(i * block_bytes, block_bytes)));
  frame.layout = engine.state_layout();
  frame.record = record;
  frame.blocks = block_data;
  frame.num_blocks = static_cast<int64_t>(blocks.size());
  frame.block_bytes = static_cast<int64_t>(block_bytes);
  return encode_sequence_frame(frame);
}

Status import_sequence(Engine& engine, int32_t lane, const SequenceFrame& frame, std::span<const BlockId> blocks) {
  const size_t block_bytes = static_cast<size_t>(engine.cache_layout().block_bytes);
  if (frame.num_blocks != 0 && frame.num_blocks != static_cast<int64_t>(blocks.size()))
    return invalid_argument("sequence frame: " + std::to_string(frame.num_blocks) + " blocks for " +
                            std::to_string(blocks.size()));
  TRY(engine.import_lane(lane, frame.moment, frame.kind, frame.record));
  for (size_t i = 0; i < static_cast<size_t>(frame.num_blocks); ++i)
    TRY(engine.write_block(blocks[i], frame.blocks.subspan(i * block_bytes, block_bytes)));
  return {};
}

}  // namespace deepinfer
