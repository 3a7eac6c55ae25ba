// SPDX-License-Identifier: MIT
#include "engine/lane.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "engram/hasher.h"

namespace deepinfer {

TokenRing::TokenRing(int64_t look_back, int64_t verify_rows_max)
    : tokens_(std::bit_ceil(static_cast<uint64_t>(look_back + verify_rows_max + 1)), 0) {}

void TokenRing::clear() { begin_ = end_ = 0; }

void TokenRing::write(int64_t position, TokenId token) {
  const int64_t capacity = static_cast<int64_t>(tokens_.size());
  if (position > end_ || position < begin_) begin_ = position;  // a new start: nothing before it is known
  tokens_[static_cast<size_t>(position) % tokens_.size()] = token;
  end_ = position + 1;
  begin_ = std::max(begin_, end_ - capacity);
}

bool TokenRing::holds(int64_t begin, int64_t end) const { return begin >= begin_ && end <= end_; }

void Lane::start(LaneStart start) {
  keeps_history = needs_history(start.params);
  params = std::move(start.params);
  history = TokenHistory();
  if (keeps_history) {
    history.append_prompt(start.prompt);
    for (const TokenId token : start.output) history.append_output(token);
  }
  num_output_tokens = static_cast<int64_t>(start.output.size());
  images = std::move(start.images);
  tokens.clear();
  ring_begin = ring_end = 0;
  stop_ids = std::move(start.stop_ids);
  output_tokens_max = start.output_tokens_max;
  is_ended = false;
  last_token.reset();
  position = 0;
  drafts.clear();
  confidences.clear();
}

void Lane::append(TokenId token) {
  if (keeps_history) history.append_output(token);
  ++num_output_tokens;
  last_token = token;
  is_ended = num_output_tokens >= output_tokens_max || std::ranges::find(stop_ids, token) != stop_ids.end();
}

void Lane::note_rows(int64_t position_begin, int64_t num_rows) {
  if (position_begin > ring_end || ring_begin == ring_end) ring_begin = position_begin;
  ring_end = std::max(ring_end, position_begin + num_rows);
}

const bf16* Lane::image_row(int64_t position, int64_t hidden) const {
  for (const LaneImage& image : images)
    if (position >= image.positions.begin && position < image.positions.end)
      return image.rows->data() + (position - image.positions.begin) * hidden;
  return nullptr;
}

namespace {

// The token at a position below the sequence's first row: from the lane if it ran there, else from what the batch says.
Result<TokenId> token_before(const Lane& lane, const BatchSequence& sequence, int64_t position) {
  if (lane.tokens.holds(position, sequence.position_begin)) return lane.tokens.read(position);
  const int64_t back = sequence.position_begin - position;
  const int64_t given = static_cast<int64_t>(sequence.history.size());
  if (back <= given) return sequence.history[static_cast<size_t>(given - back)];
  return invalid_argument("batch: lane " + std::to_string(sequence.lane) + " starts at position " +
                          std::to_string(sequence.position_begin) + ", but the token at " + std::to_string(position) +
                          " is unknown: give it as history");
}

}  // namespace

Status append_ngrams(const Lane& lane, const BatchSequence& sequence, std::span<const TokenId> rows, int64_t look_back,
                     std::vector<TokenId>& out) {
  const int64_t begin = sequence.position_begin;
  const size_t stride = static_cast<size_t>(look_back), first = out.size();
  out.resize(first + rows.size() * stride, EngramHasher::kDead);
  TokenId* ngram = out.data() + first;
  const auto is_image = [&](int64_t position) { return !lane.images.empty() && lane.image_row(position, 0); };
  for (size_t row = 0; row < rows.size(); ++row, ngram += stride)
    for (size_t back = 0; back < stride; ++back) {
      const int64_t position = begin + static_cast<int64_t>(row) - static_cast<int64_t>(back);
      if (position < 0) break;
      TokenId token = 0;
      if (back <= row) {
        token = rows[row - back];
      } else {
        ASSIGN_OR_RETURN(token, token_before(lane, sequence, position));
      }
      if (!is_image(position)) ngram[back] = token;
    }
  return {};
}

void remember_tokens(Lane& lane, const BatchSequence& sequence, std::span<const TokenId> rows, int64_t look_back) {
  const int64_t begin = sequence.position_begin, first = std::max<int64_t>(0, begin - look_back + 1);
  if (!lane.tokens.holds(first, begin))
    for (int64_t position = first; position < begin; ++position)
      if (const auto token = token_before(lane, sequence, position); token.ok())
        lane.tokens.write(position, token.value());
  for (size_t row = 0; row < rows.size(); ++row) lane.tokens.write(begin + static_cast<int64_t>(row), rows[row]);
}

}  // namespace deepinfer
