// SPDX-License-Identifier: MIT
// Test only: an engine made of arithmetic. The "model" continues a sequence by a hash of its tokens, so the right
// output of every request is known whatever the schedule was. It keeps what a device keeps - lanes, blocks, host slots
// - and checks on every step that what a row reads is what its own sequence left there: a block that was freed, handed
// on or not loaded in time has other tokens in it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <vector>

#include "base/philox.h"
#include "scheduler/scheduler.h"

namespace deepinfer {

constexpr int64_t kNumDrafts = 4;

inline TokenId next_token(std::span<const TokenId> tokens) {
  uint64_t h = 1469598103934665603ull;
  for (const TokenId t : tokens) h = (h ^ static_cast<uint64_t>(t)) * 1099511628211ull;
  return static_cast<TokenId>(h >> 33) % 997;
}

inline std::vector<TokenId> right_output(const SequenceRequest& request) {
  std::vector<TokenId> tokens = request.prompt;
  for (int64_t i = 0; i < request.max_output_tokens; ++i) {
    tokens.push_back(next_token(tokens));
    if (!request.stop_ids.empty() && tokens.back() == request.stop_ids[0]) break;
  }
  return {tokens.begin() + static_cast<int64_t>(request.prompt.size()), tokens.end()};
}

class FakeEngine {
 public:
  explicit FakeEngine(uint64_t seed) : rng_(seed) {}

  void copy(const BlockCopy& copy) {
    if (copy.direction == BlockCopy::Direction::kLoad) blocks_[copy.block] = host_[copy.slot];
    else host_[copy.slot] = blocks_[copy.block];
  }

  // Saves first, as whoever owns a real engine does: what they read may be written by everything after them.
  void save(const std::vector<StateMove>& moves) {
    for (const StateMove& move : moves) {
      if (move.kind != StateMove::Kind::kSave) continue;
      const Lane& lane = lanes_.at(move.lane);
      CHECK(lane.owner == move.id && static_cast<int64_t>(lane.tokens.size()) >= move.position);
      SavedState saved{{lane.tokens.begin(), lane.tokens.begin() + move.position}, {}};
      for (const BlockId block : move.blocks) saved.blocks.push_back(blocks_[block]);
      CHECK(states_.emplace(move.snapshot, std::move(saved)).second);
    }
  }
  void restore(const std::vector<StateMove>& moves, const std::map<SequenceId, std::vector<TokenId>>& known,
               const std::map<SequenceId, SequenceRequest>& requests) {
    for (const StateMove& move : moves) {
      if (move.kind == StateMove::Kind::kDrop) CHECK(states_.erase(move.snapshot) == 1);
      if (move.kind != StateMove::Kind::kRestore) continue;
      const SavedState& saved = states_.at(move.snapshot);
      CHECK(static_cast<int64_t>(saved.tokens.size()) == move.position && saved.blocks.size() == move.blocks.size());
      for (size_t i = 0; i < move.blocks.size(); ++i) blocks_[move.blocks[i]] = saved.blocks[i];
      lanes_[move.lane] = {move.id, saved.tokens};
      lanes_[move.lane].num_outputs =
          static_cast<int64_t>(known.at(move.id).size() - requests.at(move.id).prompt.size());
    }
  }
  size_t num_states() const { return states_.size(); }
  int64_t num_prompt_rows = 0;  // that ran

  // `known` are the tokens of every sequence that the caller has: prompt and delivered output.
  StepOutput run(const Batch& batch, const std::map<SequenceId, std::vector<TokenId>>& known,
                 const std::map<SequenceId, SequenceRequest>& requests) {
    StepOutput output{.step = batch.step};
    int64_t budget = batch.verify_budget;
    for (const BatchSequence& rows : batch.sequences) {
      Lane& lane = lanes_[rows.lane];
      if (rows.starts_lane) {
        const auto& tokens = known.at(rows.id);
        CHECK(rows.position_begin <= static_cast<int64_t>(tokens.size()));
        lane = {rows.id, {tokens.begin(), tokens.begin() + rows.position_begin}};
        lane.num_outputs = static_cast<int64_t>(tokens.size() - requests.at(rows.id).prompt.size());
      }
      CHECK(lane.owner == rows.id);
      if (rows.tail) CHECK(*rows.tail == *tail_of(lane.tokens, rows.position_begin));
      output.sequences.push_back(run_sequence(batch, rows, requests.at(rows.id), lane, budget));
    }
    return output;
  }

 private:
  struct Lane {
    SequenceId owner{};
    std::vector<TokenId> tokens;  // computed
    int64_t num_outputs = 0;
    TokenId last = 0;
    std::vector<TokenId> drafts;
    bool is_ended = false;
  };

  SequenceOutput run_sequence(const Batch& batch, const BatchSequence& rows, const SequenceRequest& request, Lane& lane,
                              int64_t& budget) {
    SequenceOutput out{.id = rows.id, .lane = rows.lane};
    if (rows.follows && lane.is_ended) return out;
    const auto first = batch.tokens.begin() + rows.rows.begin;
    std::vector<TokenId> tokens(first, first + rows.rows.size());
    size_t num_drafts = rows.num_logits_rows > 0 ? static_cast<size_t>(rows.num_logits_rows - 1) : 0;
    int64_t position = rows.position_begin;
    if (rows.follows) {
      num_drafts = static_cast<size_t>(
          std::max<int64_t>(0, std::min({static_cast<int64_t>(lane.drafts.size()), rows.follow_drafts_max, budget,
                                         request.max_output_tokens - lane.num_outputs - 1})));
      budget -= static_cast<int64_t>(num_drafts);
      tokens = {lane.last};
      tokens.insert(tokens.end(), lane.drafts.begin(), lane.drafts.begin() + static_cast<int64_t>(num_drafts));
      position = static_cast<int64_t>(lane.tokens.size());
    }
    CHECK(position <= static_cast<int64_t>(lane.tokens.size()));
    lane.tokens.resize(static_cast<size_t>(position));
    touch_blocks(rows, lane, tokens);
    out.num_rows = static_cast<int64_t>(tokens.size());
    num_prompt_rows += std::clamp<int64_t>(static_cast<int64_t>(request.prompt.size()) - position, 0, out.num_rows);
    lane.tokens.insert(lane.tokens.end(), tokens.begin(), tokens.end() - static_cast<int64_t>(num_drafts));
    if (!rows.sample || rows.num_logits_rows == 0) {
      leave_tail(rows, position, lane, out);
      return out;
    }
    out.num_verified = static_cast<int64_t>(num_drafts);
    for (size_t i = 0;; ++i) {
      const TokenId picked = next_token(lane.tokens);
      out.tokens.push_back(picked);
      lane.last = picked;
      ++lane.num_outputs;
      lane.is_ended = lane.num_outputs == request.max_output_tokens ||
                      std::ranges::find(request.stop_ids, picked) != request.stop_ids.end();
      if (lane.is_ended || i == num_drafts || tokens[tokens.size() - num_drafts + i] != picked) break;
      lane.tokens.push_back(picked);
      ++out.num_accepted;
    }
    leave_tail(rows, position, lane, out);
    lane.drafts.clear();
    if (rows.draft && !lane.is_ended) propose(lane, out);
    return out;
  }

  // A tail here is the tokens before it, so whoever starts from another sequence's is found out.
  static TailBytes tail_of(const std::vector<TokenId>& tokens, int64_t position) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(tokens.data());
    return std::make_shared<std::vector<uint8_t>>(bytes, bytes + static_cast<size_t>(position) * sizeof(TokenId));
  }
  static void leave_tail(const BatchSequence& rows, int64_t position, const Lane& lane, SequenceOutput& out) {
    const int64_t end = static_cast<int64_t>(lane.tokens.size()) / kBlockTokens * kBlockTokens;
    if (!rows.tail_from || end < *rows.tail_from || end <= position) return;
    out.tail = tail_of(lane.tokens, end);
    out.tail_position = end;
  }

  // Rows write their token into their block; everything before them must be what the sequence is made of.
  void touch_blocks(const BatchSequence& rows, const Lane& lane, const std::vector<TokenId>& tokens) {
    const int64_t begin = static_cast<int64_t>(lane.tokens.size()), end = begin + static_cast<int64_t>(tokens.size());
    CHECK(end <= rows.blocks->capacity_tokens());
    for (int64_t p = begin; p < end; ++p)
      if (p >= rows.limits.global_kv_begin) place(rows, p) = tokens[static_cast<size_t>(p - begin)];
    for (int64_t p = 0; p < end; ++p)
      CHECK(place(rows, p) ==
            (p < begin ? lane.tokens[static_cast<size_t>(p)] : tokens[static_cast<size_t>(p - begin)]));
  }
  TokenId& place(const BatchSequence& rows, int64_t position) {
    return blocks_[rows.blocks->block_of(position)][static_cast<size_t>(position % kBlockTokens)];
  }

  void propose(Lane& lane, SequenceOutput& out) {
    std::vector<TokenId> tokens = lane.tokens;
    tokens.push_back(lane.last);
    for (int64_t i = 0; i < kNumDrafts; ++i) {
      const bool good = rng_.uniform() < 0.7f;
      out.drafts.push_back(good ? next_token(tokens) : 998);
      out.confidences.push_back(good ? 1.5f : 0.2f);
      tokens.push_back(out.drafts.back());
    }
    lane.drafts = out.drafts;
  }

  struct SavedState {
    std::vector<TokenId> tokens;
    std::vector<std::array<TokenId, kBlockTokens>> blocks;
  };

  Rng rng_;
  std::map<int32_t, Lane> lanes_;
  std::map<SnapshotId, SavedState> states_;
  std::map<BlockId, std::array<TokenId, kBlockTokens>> blocks_;
  std::map<HostSlot, std::array<TokenId, kBlockTokens>> host_;
};

}  // namespace deepinfer
