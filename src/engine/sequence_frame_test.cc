// SPDX-License-Identifier: MIT
// A sequence leaves an engine as bytes and goes on elsewhere as if it had never moved; anything else is refused by
// name.
#include "engine/sequence_frame.h"

#include <gtest/gtest.h>

#include <functional>

#include "base/philox.h"
#include "engine/engine_state.h"
#include "engine/golden_prompts.h"
#include "engine/sequence_driver.h"

namespace deepinfer {
namespace {

std::vector<TokenId> random_tokens(uint64_t seed, int64_t num) {
  Rng rng(seed);
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < num; ++i) tokens.push_back(static_cast<TokenId>(rng.below(500)));
  return tokens;
}

LaneRecordLayout released_layout(int64_t verify_rows_max) {
  const auto config = parse_model_config(read_file(DEEPINFER_TESTDATA "/released/config.json").value()).value();
  const auto roles = make_layer_roles(config).value();
  return {make_cache_layout(config, roles, verify_rows_max), roles.num_encoder_layers, config.engram.ngram_max};
}

// model.md 5.1: rings of 67,584 B (43 with the draft's), three tails of 4,096 B, 24 B of Engram look-back.
TEST(LaneRecord, HasThePublishedSizesForTheReleasedModelWhateverTheRings) {
  for (const int64_t verify_rows_max : {1, 6, 60, 200}) {
    const LaneRecordLayout layout = released_layout(verify_rows_max);
    EXPECT_EQ(layout.ring_bytes(), 67'584);
    EXPECT_EQ(layout.bytes(LaneRecordKind::kTail), 21 * 67'584);
    EXPECT_EQ(layout.bytes(LaneRecordKind::kTail), 1'419'264);
    EXPECT_EQ(layout.bytes(LaneRecordKind::kFull), 43 * 67'584 + 3 * 4'096 + 24);
    EXPECT_EQ(layout.bytes(LaneRecordKind::kFull), 2'918'424);
  }
}

EngineOptions options_of(int64_t verify_rows_max) {
  EngineOptions options = golden_options();
  options.rows_max = 512;
  options.verify_rows_max = verify_rows_max;
  return options;
}

const BlockTable kHome({BlockId{4}, BlockId{8}, BlockId{15}}), kAway({BlockId{30}, BlockId{7}, BlockId{21}});

SequenceFrame frame_at(const std::vector<TokenId>& tokens, int64_t position, const RowLimits& limits) {
  SequenceFrame frame{.model = "golden A"};
  frame.moment = {position, limits};
  frame.num_prompt_tokens = position;
  frame.tokens.assign(tokens.begin(), tokens.begin() + position);
  return frame;
}

std::vector<BlockId> blocks_for(const BlockTable& table, int64_t num_tokens) {
  return {table.blocks().begin(), table.blocks().begin() + BlockTable::blocks_for(num_tokens)};
}

// Moves a sequence after `length` tokens and compares ten rows on both sides.
void expect_same_continuation(Engine& home, Engine& away, int64_t length, const RowLimits& limits) {
  const auto tokens = random_tokens(static_cast<uint64_t>(length), length + 10);
  SequenceDriver stays(home, 3, kHome);
  stays.limits = limits;
  stays.run({tokens.begin(), tokens.begin() + length}, 0, 1);
  auto bytes = export_sequence(home, 3, frame_at(tokens, length, limits), blocks_for(kHome, length));
  ASSERT_TRUE(bytes.ok()) << bytes.status().message();
  const auto frame = decode_sequence_frame(*bytes);
  ASSERT_TRUE(frame.ok()) << frame.status().message();
  ASSERT_TRUE(check_sequence_frame(frame.value(), away, "golden A").ok());
  EXPECT_EQ(frame.value().tokens, std::vector<TokenId>(tokens.begin(), tokens.begin() + length));
  SequenceDriver goes(away, 1, kAway);
  goes.limits = frame.value().moment.limits;
  const Status imported = import_sequence(away, 1, frame.value(), blocks_for(kAway, length));
  ASSERT_TRUE(imported.ok()) << imported.message();
  // The state that left is the state that arrived.
  auto again = export_sequence(away, 1, frame_at(tokens, length, limits), blocks_for(kAway, length));
  ASSERT_TRUE(again.ok()) << again.status().message();
  EXPECT_EQ(*again, *bytes);
  for (int64_t i = 0; i < 10; ++i) {
    const SequenceOutput a = stays.run({tokens[static_cast<size_t>(length + i)]}, length + i, 1);
    const SequenceOutput b = goes.run({tokens[static_cast<size_t>(length + i)]}, length + i, 1);
    ASSERT_EQ(stays.logits, goes.logits) << length << " + " << i;
    ASSERT_EQ(a.drafts, b.drafts);
    ASSERT_EQ(a.confidences, b.confidences);
  }
}

// Lengths below the window, inside and at the end of compression groups, around ring ends and block borders.
TEST(SequenceFrame, ContinuesElsewhereBitForBit) {
  auto home = golden_engine(options_of(6)), away = golden_engine(options_of(90));  // rings of 64 and of 128 slots
  ASSERT_TRUE(home && away);
  ASSERT_NE(home->cache_layout().ring_slots, away->cache_layout().ring_slots);
  for (const int64_t length : {1, 2, 3, 9, 15, 16, 17, 63, 64, 65, 127, 128, 129, 255, 301})
    expect_same_continuation(*home, *away, length, {});
  for (const int64_t length : {20, 97, 300})
    expect_same_continuation(*away, *home, length,
                             plan_replay(home->replay_geometry(), ReplayMode::kFast, 0, length).limits);
}

// After a verify run whose drafts fell, the rings hold rows above the position: they are no part of the record.
TEST(SequenceFrame, LeavesRejectedRowsBehind) {
  auto engine = golden_engine(options_of(6));
  ASSERT_TRUE(engine);
  const auto tokens = random_tokens(5, 80), wrong = random_tokens(6, 5);
  SequenceDriver clean(*engine, 0, kHome), tried(*engine, 1, kAway);
  std::vector<std::vector<uint8_t>> frames;
  for (auto& [driver, lane] : {std::pair(&clean, 0), {&tried, 1}}) {
    driver->run({tokens.begin(), tokens.begin() + 70}, 0, 1);
    if (lane == 1) driver->run(wrong, 70, 5);
    auto bytes = export_sequence(*engine, lane, frame_at(tokens, 70, {}), {});
    ASSERT_TRUE(bytes.ok()) << bytes.status().message();
    frames.push_back(std::move(*bytes));
  }
  EXPECT_EQ(frames[0], frames[1]);
}

// The encoder's windows at an anchor: the next prompt goes on there without replay.
TEST(LaneRecord, TailSavesTheReplayOfTheNextPrompt) {
  auto engine = golden_engine(options_of(6));
  ASSERT_TRUE(engine);
  const int64_t anchor = 256, length = 300;
  const auto tokens = random_tokens(8, length);
  const RowLimits cold_limits = plan_replay(engine->replay_geometry(), ReplayMode::kFast, 0, length).limits;
  SequenceDriver cold(*engine, 0, kHome);
  cold.limits = cold_limits;
  cold.run({tokens.begin(), tokens.begin() + anchor}, 0, 0);
  std::vector<uint8_t> tail(static_cast<size_t>(engine->lane_record_bytes(LaneRecordKind::kTail)));
  ASSERT_TRUE(engine->export_lane(0, {anchor, cold_limits}, LaneRecordKind::kTail, tail).ok());
  const SequenceOutput wanted = cold.run({tokens.begin() + anchor, tokens.end()}, anchor, 1);

  SequenceDriver warm(*engine, 1, BlockTable({BlockId{4}, BlockId{8}, BlockId{16}}));
  warm.limits = cold_limits;
  warm.limits.global_kv_begin = anchor;
  warm.limits.window_begin = anchor - engine->config().window;
  warm.history.assign(tokens.begin() + anchor - 3, tokens.begin() + anchor);
  ASSERT_TRUE(engine->import_lane(1, {anchor, warm.limits}, LaneRecordKind::kTail, tail).ok());
  const SequenceOutput got = warm.run({tokens.begin() + anchor, tokens.end()}, anchor, 1);
  EXPECT_EQ(warm.logits, cold.logits);
  EXPECT_EQ(got.drafts, wanted.drafts);
}

TEST(LaneRecord, SaysWhatCannotBeRecorded) {
  auto engine = golden_engine(options_of(6));
  ASSERT_TRUE(engine);
  const auto tokens = random_tokens(9, 200);
  SequenceDriver driver(*engine, 0, kHome);
  driver.run({tokens.begin(), tokens.end()}, 0, 1);
  std::vector<uint8_t> full(static_cast<size_t>(engine->lane_record_bytes(LaneRecordKind::kFull)));
  std::vector<uint8_t> tail(static_cast<size_t>(engine->lane_record_bytes(LaneRecordKind::kTail)));
  const auto message = [](const Status& status) { return status.message(); };
  EXPECT_EQ(message(engine->export_lane(0, {201}, LaneRecordKind::kFull, full)),
            "lane 0: rows up to position 200 have run; the window before 201 is not held");
  EXPECT_EQ(message(engine->export_lane(0, {128}, LaneRecordKind::kTail, tail)),  // 64 slots: 136 is the oldest
            "lane 0: rows up to position 200 have run; the window before 128 is not held");
  EXPECT_TRUE(engine->export_lane(0, {152}, LaneRecordKind::kFull, full).code() == StatusCode::kInvalidArgument);
  EXPECT_EQ(message(engine->export_lane(0, {200}, LaneRecordKind::kTail, tail)),
            "lane 0: a tail record stands at a multiple of 128, not at 200");
  EXPECT_EQ(message(engine->export_lane(7, {200}, LaneRecordKind::kFull, full)),
            "lane 7 has no sequence: admit it first");
  EXPECT_EQ(message(engine->export_lane(99, {200}, LaneRecordKind::kFull, full)), "lane 99 does not exist");
  EXPECT_NE(message(engine->export_lane(0, {200}, LaneRecordKind::kFull, tail)).find("bytes, not"), std::string::npos);
  EXPECT_FALSE(engine->read_block(BlockId{64}, full).ok());
  EXPECT_FALSE(engine->write_block(BlockId{0}, std::span(full).first(3)).ok());
}

std::vector<uint8_t> small_frame(Engine& engine) {
  const auto tokens = random_tokens(1, 20);
  SequenceDriver driver(engine, 0, kHome);
  driver.run(tokens, 0, 1);
  SequenceFrame frame = frame_at(tokens, 20, {});
  frame.seed = 77;
  frame.choice = 2;
  frame.drafts = {5, 6};
  frame.confidences = {0.5f, -1};
  frame.keys = {{1, 2}};
  auto bytes = export_sequence(engine, 0, frame, {});
  EXPECT_TRUE(bytes.ok()) << bytes.status().message();
  return std::move(bytes).value();
}

TEST(SequenceFrame, CarriesWhoTheSequenceIs) {
  auto engine = golden_engine();
  ASSERT_TRUE(engine);
  const auto bytes = small_frame(*engine);
  const auto frame = decode_sequence_frame(bytes);
  ASSERT_TRUE(frame.ok());
  EXPECT_EQ(frame.value().seed, 77u);
  EXPECT_EQ(frame.value().choice, 2u);
  EXPECT_EQ(frame.value().drafts, (std::vector<TokenId>{5, 6}));
  EXPECT_EQ(frame.value().confidences, (std::vector<float>{0.5f, -1}));
  EXPECT_EQ(frame.value().keys, (std::vector<BlockKey>{{1, 2}}));
  EXPECT_EQ(encode_sequence_frame(frame.value()), bytes);
}

TEST(SequenceFrame, FindsEveryFlippedBit) {
  auto engine = golden_engine();
  ASSERT_TRUE(engine);
  std::vector<uint8_t> bytes = small_frame(*engine);
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
    ASSERT_FALSE(decode_sequence_frame(bytes).ok()) << "bit " << bit;
    bytes[bit / 8] ^= static_cast<uint8_t>(1u << (bit % 8));
  }
  EXPECT_TRUE(decode_sequence_frame(bytes).ok());
}

TEST(SequenceFrame, RefusesEveryTruncation) {
  auto engine = golden_engine();
  ASSERT_TRUE(engine);
  std::vector<uint8_t> bytes = small_frame(*engine);
  for (size_t size = 0; size < bytes.size(); ++size)
    ASSERT_FALSE(decode_sequence_frame(std::span(bytes).first(size)).ok()) << size;
  bytes.push_back(0);
  EXPECT_FALSE(decode_sequence_frame(bytes).ok());
}

TEST(SequenceFrame, RefusesAnotherModelLayoutAndVersionByName) {
  auto engine = golden_engine();
  ASSERT_TRUE(engine);
  std::vector<uint8_t> bytes = small_frame(*engine);
  auto frame = decode_sequence_frame(bytes);
  ASSERT_TRUE(frame.ok());
  EXPECT_EQ(check_sequence_frame(frame.value(), *engine, "golden B").message(),
            "sequence frame: it is of model 'golden A', this engine runs 'golden B'");
  SequenceFrame other = frame.value();
  other.layout = "window 128";
  EXPECT_EQ(check_sequence_frame(other, *engine, "golden A").message(),
            "sequence frame: its state is 'window 128', this engine has '" + engine->state_layout() + "'");
  other = frame.value();
  other.record = other.record.first(5);
  EXPECT_NE(check_sequence_frame(other, *engine, "golden A").message().find("record of 5 bytes"), std::string::npos);
  bytes[8] = 2;
  EXPECT_EQ(decode_sequence_frame(bytes).status().message(), "sequence frame: version 2, this build reads version 1");
  bytes[0] = 'X';
  EXPECT_EQ(decode_sequence_frame(bytes).status().message(), "sequence frame: it does not begin with DISEQFRM");
}

}  // namespace
}  // namespace deepinfer
