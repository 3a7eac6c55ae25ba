// SPDX-License-Identifier: MIT
#include "engine/lane_record.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "engine/engine_state.h"

namespace deepinfer {
namespace {

using State = Engine::State;

constexpr uint32_t kTokenKnown = 1, kTokenOfImage = 2;

struct KnownToken {
  TokenId id = 0;
  uint32_t flags = 0;
};
static_assert(sizeof(KnownToken) == 8);

int64_t source_tail_bytes(const CacheLayout& layout, const CacheLayout::Source& source) {
  return (source.ratio - 1) * 2 * layout.head_dim * static_cast<int64_t>(sizeof(float));
}

LaneRecordLayout layout_of(const State& state) {
  return {state.layout, state.roles.num_encoder_layers, state.hasher ? state.hasher->look_back() : 0};
}

std::string lane_name(int32_t lane) { return "lane " + std::to_string(lane); }

Status check_call(const State& state, int32_t lane, const LaneMoment& moment, LaneRecordKind kind, size_t num_bytes) {
  if (lane < 0 || lane >= state.options.lanes_max) return invalid_argument(lane_name(lane) + " does not exist");
  if (!state.is_admitted[static_cast<size_t>(lane)])
    return invalid_argument(lane_name(lane) + " has no sequence: admit it first");
  if (moment.position < 0 || moment.position > INT32_MAX)
    return invalid_argument(lane_name(lane) + ": position " + std::to_string(moment.position));
  if (kind == LaneRecordKind::kTail && moment.position % kBlockPositions != 0)
    return invalid_argument(lane_name(lane) + ": a tail record stands at a multiple of " +
                            std::to_string(kBlockPositions) + ", not at " + std::to_string(moment.position));
  const int64_t wanted = layout_of(state).bytes(kind);
  if (static_cast<int64_t>(num_bytes) != wanted)
    return invalid_argument(lane_name(lane) + ": a " + to_string(kind) + " record has " + std::to_string(wanted) +
                            " bytes, not " + std::to_string(num_bytes));
  return {};
}

// Copies between a lane and a record, piece by piece; `Byte` says the direction.
template <typename Byte>
class RecordWalk {
 public:
  RecordWalk(const State& state, int32_t lane, const LaneMoment& moment, std::span<Byte> record)
      : state_(state), lane_(lane), moment_(moment), record_(record) {}

  void rings(int num_rings) {
    for (int layer = 0; layer < num_rings; ++layer) {
      const bool encodes = layer < state_.roles.num_encoder_layers;
      ring(layer, encodes ? moment_.limits.window_begin : moment_.limits.decoder_window_begin);
    }
  }

  void tails() {
    const CacheLayout& layout = state_.layout;
    const int64_t row_bytes = 2 * layout.head_dim * static_cast<int64_t>(sizeof(float));
    for (size_t s = 0; s < layout.sources.size(); ++s) {
      const int64_t ratio = layout.sources[s].ratio, begin = moment_.position / ratio * ratio;
      const auto rows = state_.caches.tail(static_cast<int>(s));
      for (int64_t p = begin; p < begin + ratio - 1; ++p)
        piece(reinterpret_cast<uint8_t*>(&rows(lane_, p % layout.tail_slots, 0)), row_bytes, p < moment_.position);
    }
  }

  size_t at() const { return at_; }

 private:
  void ring(int layer, int64_t window_begin) {
    const CacheLayout& layout = state_.layout;
    uint8_t* base = state_.caches.ring_base(layer) + lane_ * layout.ring_bytes();
    for (int64_t p = moment_.position - layout.window; p < moment_.position; ++p) {
      const int64_t slot = (p % layout.ring_slots + layout.ring_slots) % layout.ring_slots;
      piece(base + slot * layout.window_row_bytes, layout.window_row_bytes, p >= std::max<int64_t>(0, window_begin));
    }
  }

  void piece(uint8_t* device, int64_t num_bytes, bool is_held) {
    const size_t size = static_cast<size_t>(num_bytes);
    auto part = record_.subspan(at_, size);
    at_ += size;
    if constexpr (std::is_const_v<Byte>) {
      if (is_held) state_.machine().copy(device, part.data(), num_bytes);
    } else if (is_held) {
      state_.machine().copy(part.data(), device, num_bytes);
    } else {
      std::memset(part.data(), 0, size);
    }
  }

  const State& state_;
  int32_t lane_;
  LaneMoment moment_;
  std::span<Byte> record_;
  size_t at_ = 0;
};

Status export_known_tokens(const Lane& lane, int64_t position, int num, std::span<uint8_t> out) {
  for (int i = 0; i < num; ++i) {
    KnownToken token;
    const int64_t p = position - 1 - i;
    if (p >= 0) {
      if (!lane.tokens.holds(p, p + 1))
        return invalid_argument("the token at position " + std::to_string(p) + " is not known any more");
      token = {lane.tokens.read(p), kTokenKnown | (lane.image_row(p, 0) ? kTokenOfImage : 0)};
    }
    std::memcpy(out.data() + static_cast<size_t>(i) * sizeof(token), &token, sizeof(token));
  }
  return {};
}

Result<std::vector<KnownToken>> parse_known_tokens(const State& state, const Lane& lane, int64_t position, int num,
                                                   std::span<const uint8_t> in) {
  std::vector<KnownToken> tokens(static_cast<size_t>(num));
  for (int i = 0; i < num; ++i) {
    KnownToken& token = tokens[static_cast<size_t>(i)];
    std::memcpy(&token, in.data() + static_cast<size_t>(i) * sizeof(token), sizeof(token));
    const int64_t p = position - 1 - i;
    if ((p >= 0) != ((token.flags & kTokenKnown) != 0))
      return corruption("record: look-back token " + std::to_string(i) + " does not fit position " +
                        std::to_string(position));
    if (token.id < 0 || token.id >= state.config().vocab_size)
      return corruption("record: look-back token " + std::to_string(token.id) + " of a vocabulary of " +
                        std::to_string(state.config().vocab_size));
    if (p >= 0 && (lane.image_row(p, 0) != nullptr) != ((token.flags & kTokenOfImage) != 0))
      return invalid_argument("record: position " + std::to_string(p) + " is of an image on one side only: admit the " +
                              "sequence with its images");
  }
  return tokens;
}

// Whether the rings still have what a record of this moment needs of them.
bool holds_window(const State& state, const Lane& lane, const LaneMoment& moment) {
  const int64_t held = std::max(lane.ring_begin, lane.ring_end - state.layout.ring_slots);
  const int64_t needed = std::max({int64_t{0}, moment.limits.window_begin, moment.position - state.layout.window});
  return moment.position <= lane.ring_end && (needed >= held || needed >= moment.position);
}

void start_behind(const State& state, Lane& lane, int64_t position) {
  lane.ring_begin = std::max<int64_t>(0, position - state.layout.window);
  lane.ring_end = position;
  lane.tokens.clear();
}

}  // namespace

const char* to_string(LaneRecordKind kind) { return kind == LaneRecordKind::kTail ? "tail" : "full"; }

LaneRecordLayout::LaneRecordLayout(const CacheLayout& caches, int num_encoder_layers, int look_back)
    : num_layers_(caches.num_layers),
      num_encoder_layers_(num_encoder_layers),
      num_known_tokens_(std::max(0, look_back - 1)),
      window_(caches.window),
      row_bytes_(caches.window_row_bytes) {
  for (const CacheLayout::Source& source : caches.sources) tail_bytes_ += source_tail_bytes(caches, source);
}

int64_t LaneRecordLayout::bytes(LaneRecordKind kind) const {
  const int64_t rings = num_rings(kind) * ring_bytes();
  if (kind == LaneRecordKind::kTail) return rings;
  return rings + tail_bytes_ + num_known_tokens_ * static_cast<int64_t>(sizeof(KnownToken));
}

std::string Engine::state_layout() const {
  const CacheLayout& layout = state_->layout;
  std::string text = "window " + std::to_string(layout.window) + " x " + std::to_string(layout.window_row_bytes) +
                     " B, layers " + std::to_string(layout.num_layers) + " of which " +
                     std::to_string(state_->roles.num_encoder_layers) + " encode, head " +
                     std::to_string(layout.head_dim) + ", rows " + std::to_string(layout.global_row_bytes) + " + " +
                     std::to_string(layout.index_row_bytes) + " B at ratios";
  for (const CacheLayout::Source& source : layout.sources) text += " " + std::to_string(source.ratio);
  return text + ", look-back " + std::to_string(state_->hasher ? state_->hasher->look_back() : 0);
}

int64_t Engine::lane_record_bytes(LaneRecordKind kind) const { return layout_of(*state_).bytes(kind); }

Status Engine::export_lane(int32_t lane, const LaneMoment& moment, LaneRecordKind kind, std::span<uint8_t> out) const {
  const State& state = *state_;
  TRY(check_call(state, lane, moment, kind, out.size()));
  state.executor->drain();  // steps under way may write the lane
  const Lane& from = state.lanes[static_cast<size_t>(lane)];
  if (!holds_window(state, from, moment))
    return invalid_argument(lane_name(lane) + ": rows up to position " + std::to_string(from.ring_end) +
                            " have run; the window before " + std::to_string(moment.position) + " is not held");
  const LaneRecordLayout layout = layout_of(state);
  RecordWalk<uint8_t> walk(state, lane, moment, out);
  walk.rings(layout.num_rings(kind));
  if (kind == LaneRecordKind::kTail) return state.machine().wait();
  walk.tails();
  TRY(state.machine().wait());
  return export_known_tokens(from, moment.position, layout.num_known_tokens(), out.subspan(walk.at()))
      .prefixed(lane_name(lane));
}

Status Engine::import_lane(int32_t lane, const LaneMoment& moment, LaneRecordKind kind,
                           std::span<const uint8_t> record) {
  State& state = *state_;
  TRY(check_call(state, lane, moment, kind, record.size()));
  state.executor->drain();
  Lane& to = state.lanes[static_cast<size_t>(lane)];
  const LaneRecordLayout layout = layout_of(state);
  std::vector<KnownToken> known;
  if (kind == LaneRecordKind::kFull) {
    const size_t num_bytes = static_cast<size_t>(layout.num_known_tokens()) * sizeof(KnownToken);
    ASSIGN_OR_RETURN(known,
                     parse_known_tokens(state, to, moment.position, layout.num_known_tokens(), record.last(num_bytes)));
  }
  RecordWalk<const uint8_t> walk(state, lane, moment, record);
  walk.rings(layout.num_rings(kind));
  start_behind(state, to, moment.position);
  if (kind == LaneRecordKind::kTail) return state.machine().wait();
  walk.tails();
  TRY(state.machine().wait());
  for (size_t i = known.size(); i-- > 0;)
    if (const int64_t p = moment.position - 1 - static_cast<int64_t>(i); p >= 0) to.tokens.write(p, known[i].id);
  return {};
}

Status start_from_tail(State& state, const BatchSequence& rows) {
  const LaneMoment moment{rows.position_begin, rows.limits};
  TRY(check_call(state, rows.lane, moment, LaneRecordKind::kTail, rows.tail->size()));
  RecordWalk<const uint8_t> walk(state, rows.lane, moment, *rows.tail);
  walk.rings(layout_of(state).num_rings(LaneRecordKind::kTail));
  start_behind(state, state.lanes[static_cast<size_t>(rows.lane)], rows.position_begin);
  return state.machine().wait();
}

// Nothing is recorded where the rows of one step went too far past the block's end for the rings.
Status record_tail(State& state, const BatchSequence& rows, SequenceOutput& output) {
  const Lane& lane = state.lanes[static_cast<size_t>(rows.lane)];
  if (rows.rows.empty() || (rows.sample && output.tokens.empty() && !output.is_late)) return {};
  const int64_t num_computed = rows.sample ? lane.position : rows.position_begin + rows.rows.size();
  const LaneMoment moment{num_computed / kBlockPositions * kBlockPositions, rows.limits};
  if (moment.position < *rows.tail_from || moment.position <= rows.position_begin) return {};
  if (!holds_window(state, lane, moment)) return {};
  const LaneRecordLayout layout = layout_of(state);
  auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(layout.bytes(LaneRecordKind::kTail)));
  RecordWalk<uint8_t> walk(state, rows.lane, moment, *bytes);
  walk.rings(layout.num_rings(LaneRecordKind::kTail));
  TRY(state.machine().wait());
  output.tail = std::move(bytes);
  output.tail_position = moment.position;
  return {};
}

Status Engine::read_block(BlockId block, std::span<uint8_t> out) const {
  const Caches& caches = state_->caches;
  if (static_cast<int64_t>(index(block)) >= caches.num_blocks ||
      static_cast<int64_t>(out.size()) != caches.layout.block_bytes)
    return invalid_argument("read_block: block " + std::to_string(index(block)) + " of " +
                            std::to_string(caches.num_blocks) + ", " + std::to_string(out.size()) + " bytes of " +
                            std::to_string(caches.layout.block_bytes));
  state_->machine().copy(out.data(), caches.blocks + static_cast<int64_t>(index(block)) * caches.layout.block_bytes,
                         caches.layout.block_bytes);
  return state_->machine().wait();
}

Status Engine::write_block(BlockId block, std::span<const uint8_t> bytes) {
  const Caches& caches = state_->caches;
  if (static_cast<int64_t>(index(block)) >= caches.num_blocks ||
      static_cast<int64_t>(bytes.size()) != caches.layout.block_bytes)
    return invalid_argument("write_block: block " + std::to_string(index(block)) + " of " +
                            std::to_string(caches.num_blocks) + ", " + std::to_string(bytes.size()) + " bytes of " +
                            std::to_string(caches.layout.block_bytes));
  state_->machine().copy(caches.blocks + static_cast<int64_t>(index(block)) * caches.layout.block_bytes, bytes.data(),
                         caches.layout.block_bytes);
  return state_->machine().wait();
}

}  // namespace deepinfer
