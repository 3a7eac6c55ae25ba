// SPDX-License-Identifier: MIT
#include "model/row_table.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

// One source of ratio 2, window 16, rings of 64 slots; bytes as for head_dim 64.
struct Fixture {
  Fixture() {
    caches.layout.window = 16;
    caches.layout.ring_slots = 64;
    caches.layout.tail_slots = 8;
    caches.layout.window_row_bytes = 66;
    caches.layout.global_row_bytes = 36;
    caches.layout.index_row_bytes = 17;
    caches.layout.head_dim = 64;
    caches.layout.num_layers = 1;
    caches.layout.sources = {{.ratio = 2, .rows_per_block = 64, .global_offset = 0, .index_offset = 64 * 36}};
    caches.layout.block_bytes = 64 * 53;
    caches.num_lanes = 4;
    caches.num_blocks = 8;
    caches.blocks_per_lane = 4;
  }
  RowBatch batch(std::vector<SequenceRows> rows, int64_t num_tokens) {
    sequences = std::move(rows);
    tokens.assign(static_cast<size_t>(num_tokens), 5);
    return {.tokens = tokens, .sequences = sequences};
  }
  StagedTables tables{host_device()};
  Caches caches;
  std::vector<SequenceRows> sequences;
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks = {BlockId{6}, BlockId{2}};
};

TEST(RowTable, RefusesRowsThatContradictEachOther) {
  Fixture f;
  RowTable table(f.caches.layout, 300, f.tables);
  f.tables.allocate();
  EXPECT_FALSE(table.fill(f.batch({{.lane = 4, .rows = {0, 3}, .blocks = f.blocks}}, 3), f.caches).ok())
      << "no such lane";
  EXPECT_FALSE(table.fill(f.batch({{.rows = {0, 2}, .blocks = f.blocks}}, 3), f.caches).ok())
      << "a row without a sequence";
  EXPECT_FALSE(table.fill(f.batch({{.rows = {0, 3}, .position_begin = 254, .blocks = f.blocks}}, 3), f.caches).ok())
      << "blocks too few";
  EXPECT_FALSE(
      table.fill(f.batch({{.rows = {0, 1}, .blocks = f.blocks}, {.rows = {1, 3}, .blocks = f.blocks}}, 3), f.caches)
          .ok())
      << "a lane twice";
  EXPECT_FALSE(
      table.fill(f.batch({{.rows = {0, 3}, .blocks = f.blocks, .num_logits_rows = 2, .decoder_begin = 2}}, 3), f.caches)
          .ok())
      << "logits of a row that stops early";
  EXPECT_EQ(table.fill(f.batch({{.rows = {0, 301}, .blocks = f.blocks}}, 301), f.caches).code(),
            StatusCode::kResourceExhausted);
}

TEST(RowTable, OnlyTheNewestRowOfASlotIsWritten) {
  Fixture f;
  RowTable table(f.caches.layout, 300, f.tables);
  f.tables.allocate();
  ASSERT_TRUE(table.fill(f.batch({{.lane = 1, .rows = {0, 100}, .blocks = f.blocks}}, 100), f.caches).ok());
  EXPECT_EQ(table.ring_offsets()(35), kSkipRow);           // position 99 takes the slot of 35
  EXPECT_EQ(table.ring_offsets()(36), 64 * 66 + 36 * 66);  // lane 1 begins behind one ring
  EXPECT_EQ(table.ring_offsets()(99), 64 * 66 + 35 * 66);
  EXPECT_EQ(table.num_fresh()(3), 4);
  EXPECT_EQ(table.num_fresh()(99), 16);
  EXPECT_EQ(table.num_visible(0)(4), 2);  // groups of positions 0-1 and 2-3
}

TEST(RowTable, PaddingSeesItselfAloneAndLeavesNothingBehind) {
  Fixture f;
  RowTable table(f.caches.layout, 300, f.tables);
  GroupTable groups(300, f.tables);
  f.tables.allocate();
  const auto batch = f.batch({{.lane = 1, .rows = {0, 3}, .position_begin = 5, .blocks = f.blocks}}, 3);
  ASSERT_TRUE(table.fill(batch, f.caches).ok());
  table.pad(5);
  groups.fill(table, f.caches, 0);
  EXPECT_EQ(groups.num_groups(), 2);  // positions 5 and 7 end groups of two
  groups.pad(table);
  ASSERT_EQ(table.num_rows(), 5);
  EXPECT_EQ(table.num_sequences(), 1);
  EXPECT_EQ(table.positions()(2), 7);
  for (const int64_t row : {3, 4}) {
    EXPECT_EQ(table.num_fresh()(row), 1);
    EXPECT_EQ(table.window_end()(row), 1);
    EXPECT_EQ(table.num_visible(0)(row), 0);
    EXPECT_EQ(table.ring_offsets()(row), kSkipRow);
    EXPECT_EQ(groups.tail_positions()(row), -1);
  }
  ASSERT_EQ(groups.num_groups(), 5);
  for (const int64_t group : {2, 3, 4}) {
    EXPECT_EQ(groups.global_offsets()(group), kSkipRow);
    EXPECT_GE(groups.last_positions()(group), 1);  // the row before it in a group of two has a slot
    EXPECT_EQ(groups.index_offsets()(group), kSkipRow);
  }
}

TEST(RowTable, RowsThatStopAtTheLastSourceKeepTheKeysTheirSuccessorsNeed) {
  Fixture f;
  RowTable all(f.caches.layout, 300, f.tables), kept(f.caches.layout, 300, f.tables);
  Staged<int64_t> offsets(f.tables, 100);
  f.tables.allocate();
  ASSERT_TRUE(all.fill(f.batch({{.rows = {0, 100},
                                 .blocks = f.blocks,
                                 .num_logits_rows = 1,
                                 .decoder_begin = 84,
                                 .decoder_window_begin = 84}},
                               100),
                       f.caches)
                  .ok());
  kept.select_decoder(all, RowTable::Windows::kDecoder);
  EXPECT_EQ(kept.num_rows(), 16);
  EXPECT_EQ(kept.source(0), 84);
  EXPECT_EQ(kept.window_begin()(0), 84);
  all.dropped_ring_offsets(kept, offsets);
  EXPECT_EQ(offsets[19], kSkipRow);  // 83 takes its slot
  EXPECT_EQ(offsets[83], 83 % 64 * 66);
  EXPECT_EQ(offsets[84], kSkipRow);  // written after attention, with the kept rows
  EXPECT_EQ(offsets[35], 35 * 66);   // its slot goes to 99 only when 99 is written
}

TEST(GroupTable, GroupsEndWhereTheirLastTokenIsARow) {
  Fixture f;
  RowTable table(f.caches.layout, 300, f.tables);
  GroupTable groups(300, f.tables);
  f.tables.allocate();
  ASSERT_TRUE(
      table
          .fill(f.batch({{.rows = {0, 4}, .position_begin = 127, .blocks = f.blocks, .global_kv_begin = 128}}, 4),
                f.caches)
          .ok());
  groups.fill(table, f.caches, 0);
  ASSERT_EQ(groups.num_groups(), 2);                // 126-127 and 128-129; 130 stays open
  EXPECT_EQ(groups.num_rows()(0), 1);               // 126 came in an earlier step
  EXPECT_EQ(groups.global_offsets()(0), kSkipRow);  // below global_kv_begin
  EXPECT_EQ(groups.first_positions()(1), 128);
  EXPECT_EQ(groups.global_offsets()(1), 2 * 64 * 53);  // block 2, first row
  EXPECT_EQ(groups.tail_positions()(3), 130);
}

}  // namespace
}  // namespace deepinfer
