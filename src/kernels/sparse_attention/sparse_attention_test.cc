// SPDX-License-Identifier: MIT
#include "kernels/sparse_attention/sparse_attention.h"

#include "kernels/op_cases.h"

namespace deepinfer {
namespace {
using namespace testing_ops;

// Two lanes with every window position and every compressed entry known, packed into rings and paged blocks.
class Caches {
 public:
  Caches(Rng& rng, int64_t head_dim, int64_t positions, int64_t entries, int32_t capacity, int32_t rows_per_block)
      : head_dim_(head_dim), positions_(positions), entries_(entries) {
    window_bytes_ = row_bytes(RowFormat::kFp8Block32, head_dim);
    global_bytes_ = row_bytes(RowFormat::kFp4Group16, head_dim);
    window_values = random_bf16(rng, 2 * positions * head_dim, 1.f);
    global_values = random_bf16(rng, 2 * entries * head_dim, 1.f);
    const int64_t blocks = ceil_div<int64_t>(entries, rows_per_block);
    for (int64_t i = 0; i < 2 * blocks; ++i)
      table_.push_back(static_cast<int32_t>((i * 5 + 3) % (2 * blocks + (2 * blocks % 5 == 0))));
    ring_bytes_.resize(static_cast<size_t>(2 * capacity * window_bytes_), 0xFF);  // NaN wherever nothing was written
    plane_.resize(static_cast<size_t>((2 * blocks + 1) * rows_per_block * global_bytes_), 0xFF);
    ring = {ring_bytes_.data(), capacity * window_bytes_, window_bytes_, capacity};
    global = {
        plane_.data(), rows_per_block * global_bytes_, global_bytes_, rows_per_block, {table_.data(), {2, blocks}}};
    round_and_pack(RowFormat::kFp8Block32, window_values, packed_window);
    round_and_pack(RowFormat::kFp4Group16, global_values, packed_global);
    for (int64_t l = 0; l < 2; ++l)
      for (int64_t j = 0; j < entries; ++j)
        std::memcpy(plane_.data() + global.offset_bytes(l, j),
                    &packed_global[static_cast<size_t>((l * entries + j) * global_bytes_)],
                    static_cast<size_t>(global_bytes_));
  }
  const uint8_t* window_row(int64_t lane, int64_t position) const {
    return &packed_window[static_cast<size_t>((lane * positions_ + position) * window_bytes_)];
  }
  const bf16* window_value(int64_t lane, int64_t position) const {
    return &window_values[static_cast<size_t>((lane * positions_ + position) * head_dim_)];
  }
  const bf16* global_value(int64_t lane, int64_t entry) const {
    return &global_values[static_cast<size_t>((lane * entries_ + entry) * head_dim_)];
  }
  // Positions [begin, end) of a lane enter its ring.
  void write_ring(int64_t lane, int64_t begin, int64_t end) {
    for (int64_t p = std::max<int64_t>(begin, 0); p < end; ++p)
      std::memcpy(ring_bytes_.data() + ring.offset_bytes(lane, p), window_row(lane, p),
                  static_cast<size_t>(window_bytes_));
  }
  int64_t window_bytes() const { return window_bytes_; }

  std::vector<bf16> window_values, global_values;
  std::vector<uint8_t> packed_window, packed_global;
  ConstRing ring;
  ConstPaged global;

 private:
  void round_and_pack(RowFormat format, std::vector<bf16>& values, std::vector<uint8_t>& packed) const {
    Scratch scratch;
    const ExecutionContext context{nullptr, &scratch};
    const int64_t rows = static_cast<int64_t>(values.size()) / head_dim_, bytes = row_bytes(format, head_dim_);
    packed.resize(static_cast<size_t>(rows * bytes));
    pack_rows_rows()[0].launch(
        context,
        {.format = format, .x = {values.data(), {rows, head_dim_}}, .base = packed.data(), .stride_bytes = bytes});
    unpack_rows_rows()[0].launch(
        context,
        {.format = format, .packed = {packed.data(), {rows, bytes}}, .out = {values.data(), {rows, head_dim_}}});
  }
  int64_t head_dim_, positions_, entries_, window_bytes_ = 0, global_bytes_ = 0;
  std::vector<int32_t> table_;
  std::vector<uint8_t> ring_bytes_, plane_;
};

// Softmax with sink over a list of entries, in double precision.
std::vector<double> attend(const bf16* q, const std::vector<const bf16*>& entries, int64_t head_dim, float scale,
                           float sink) {
  std::vector<double> scores, out(static_cast<size_t>(head_dim));
  double denominator = std::exp(double(sink));
  for (const bf16* e : entries) {
    double dot = 0;
    for (int64_t d = 0; d < head_dim; ++d) dot += double(to_float(q[d])) * to_float(e[d]);
    scores.push_back(std::exp(dot * scale));
    denominator += scores.back();
  }
  for (size_t i = 0; i < entries.size(); ++i)
    for (int64_t d = 0; d < head_dim; ++d)
      out[static_cast<size_t>(d)] += scores[i] / denominator * to_float(entries[i][d]);
  return out;
}

// One position of lane 1 with its window and some selected entries.
struct WindowQuery {
  Caches& caches;
  int64_t head_dim, heads;
  int window;
  int64_t position;
  std::vector<bf16> q;
  std::vector<float> sink;
  std::vector<int32_t> selected;  // the chosen ones first

  float scale() const { return 1.f / std::sqrt(static_cast<float>(head_dim)); }
};

// The result where the last `num_fresh` keys of the window are rows of the step and the others stand in the ring. The
// query is the last row of the step; the rows before it belong to its sequence as far as `num_fresh` says.
std::vector<bf16> attend_with_fresh(const WindowQuery& c, int64_t num_fresh,
                                    const KernelRow<SparseAttentionParams>& row, const ExecutionContext& context) {
  const int64_t rows = std::max<int64_t>(num_fresh, 1) + 2, t = rows - 1, bytes = c.caches.window_bytes();
  const auto top_k = static_cast<int64_t>(c.selected.size());
  std::vector<uint8_t> fresh(static_cast<size_t>(rows * bytes), 0xFF);
  for (int64_t i = 1; i <= num_fresh; ++i)
    std::memcpy(&fresh[static_cast<size_t>((t + 1 - i) * bytes)], c.caches.window_row(1, c.position + 1 - i),
                static_cast<size_t>(bytes));
  std::vector<bf16> queries(static_cast<size_t>(rows * c.heads * c.head_dim)), out(queries.size());
  std::copy(c.q.begin(), c.q.end(), queries.end() - static_cast<std::ptrdiff_t>(c.q.size()));
  std::vector<int32_t> lane(static_cast<size_t>(rows), 1), end(lane.size(), 0), fresh_counts(lane.size(), 0),
      chosen(static_cast<size_t>(rows * top_k), kNoEntry);
  end.back() = static_cast<int32_t>(c.position + 1);
  fresh_counts.back() = static_cast<int32_t>(num_fresh);
  std::copy(c.selected.begin(), c.selected.end(), chosen.end() - top_k);
  const SparseAttentionParams p{.q = {queries.data(), {rows, c.heads, c.head_dim}},
                                .sink = {c.sink.data(), c.heads},
                                .scale = c.scale(),
                                .window = c.window,
                                .lane = {lane.data(), {rows}},
                                .window_end = {end.data(), {rows}},
                                .num_fresh = {fresh_counts.data(), {rows}},
                                .fresh = {fresh.data(), {rows, bytes}},
                                .ring = c.caches.ring,
                                .selected = {chosen.data(), {rows, top_k}},
                                .global = c.caches.global,
                                .out = {out.data(), {rows, c.heads, c.head_dim}}};
  EXPECT_TRUE(check(p).ok()) << check(p).message();
  row.launch(context, p);
  for (size_t i = 0; i + c.q.size() < out.size(); ++i) EXPECT_EQ(to_float(out[i]), 0.f);  // rows without entries
  return {out.end() - static_cast<std::ptrdiff_t>(c.q.size()), out.end()};
}

void expect_near_double(const WindowQuery& c, const std::vector<bf16>& result) {
  std::vector<const bf16*> list;
  for (int64_t p = std::max<int64_t>(0, c.position - c.window + 1); p <= c.position; ++p)
    list.push_back(c.caches.window_value(1, p));
  for (const int32_t entry : c.selected)
    if (entry != kNoEntry) list.push_back(c.caches.global_value(1, entry));
  for (int64_t h = 0; h < c.heads; ++h) {
    const auto exact =
        attend(&c.q[static_cast<size_t>(h * c.head_dim)], list, c.head_dim, c.scale(), c.sink[static_cast<size_t>(h)]);
    for (int64_t d = 0; d < c.head_dim; ++d)
      EXPECT_NEAR(to_float(result[static_cast<size_t>(h * c.head_dim + d)]), exact[static_cast<size_t>(d)], 0.01);
  }
}

}  // namespace

// The golden entries are plain bf16 rows; o_big has thirty times larger queries, so that softmax is nearly one-hot.
TEST(SparseAttention, EqualsTheGoldenCore) {
  const auto kv = units().raw<bf16>("sa.kv");
  const auto sink = units().raw<float>("sa.sink");
  const auto idx = units().raw<int32_t>("sa.idx");
  const std::vector<int32_t> table = {0}, zeros(4);
  for (const auto& [name, factor] : {std::pair<const char*, float>{"sa.o", 1.f}, {"sa.o_big", 30.f}}) {
    auto q = units().raw<bf16>("sa.q");
    for (bf16& v : q) v = to_bf16(to_float(v) * factor);
    const auto expected = units().raw<bf16>(name);
    on_every_row<SparseAttentionParams>(sparse_attention_rows(), [&](const auto& row, const ExecutionContext& context) {
      std::vector<bf16> out(q.size());
      const SparseAttentionParams p{
          .q = {q.data(), {4, 4, 64}},
          .sink = {sink.data(), 4},
          .scale = 0.125f,
          .lane = {zeros.data(), {4}},
          .window_end = {zeros.data(), {4}},
          .num_fresh = {zeros.data(), {4}},
          .selected = {idx.data(), {4, 150}},
          .global_format = RowFormat::kBf16,
          .global = {reinterpret_cast<const uint8_t*>(kv.data()), 0, 128, 300, {table.data(), {1, 1}}},
          .out = {out.data(), {4, 4, 64}}};
      ASSERT_TRUE(check(p).ok()) << check(p).message();
      row.launch(context, p);
      expect_near_exact(out, expected);
    });
  }
}

// Ring, fresh rows and a mixture of both give the same bits, and the double-precision result to bf16 accuracy.
TEST(SparseAttention, TheWindowMayComeFromRingOrFreshRows) {
  Rng rng(101);
  for (const auto& [head_dim, heads, window] :
       {std::tuple<int64_t, int64_t, int>{64, 8, 16}, {32, 37, 16}, {96, 3, 70}, {512, 5, 128}}) {
    const int64_t positions = 2 * window + 9;
    Caches caches(rng, head_dim, positions, 50, window + 8, 8);
    WindowQuery c{caches,
                  head_dim,
                  heads,
                  window,
                  0,
                  random_bf16(rng, heads * head_dim, 1.f),
                  random_f32(rng, heads, 1.f),
                  std::vector<int32_t>(20, kNoEntry)};
    for (int i = 0; i < 13; ++i) c.selected[static_cast<size_t>(i)] = 3 * i + 1;
    for (const int64_t position : {int64_t{0}, int64_t{5}, window - 2l, window - 1l, positions - 1}) {
      c.position = position;
      caches.write_ring(1, position - window + 1, position + 1);
      std::vector<bf16> first;
      on_every_row<SparseAttentionParams>(
          sparse_attention_rows(), [&](const auto& row, const ExecutionContext& context) {
            for (const int64_t num_fresh : {int64_t{0}, int64_t{1}, std::min<int64_t>(7, position + 1),
                                            std::min<int64_t>(position + 1, window)}) {
              const std::vector<bf16> mine = attend_with_fresh(c, num_fresh, row, context);
              if (first.empty()) first = mine;
              EXPECT_EQ(mine, first) << "position " << position << " fresh " << num_fresh;
            }
          });
      expect_near_double(c, first);
    }
  }
}

// From flat scores to one-hot ones, with probabilities that vanish and entries of zeros: every row gives the same bits.
TEST(SparseAttention, EveryRowEqualsTheReferenceFromFlatToSharp) {
  Rng rng(104);
  const int64_t head_dim = 96, heads = 21, tokens = 2, top_k = 70;
  Caches caches(rng, head_dim, 40, 90, 24, 8);
  std::vector<float> sink(static_cast<size_t>(heads), 0.1f);
  const std::vector<int32_t> lane = {0, 1}, end = {30, 29}, fresh = {0, 0};
  for (int64_t l = 0; l < 2; ++l) caches.write_ring(l, 10, 30);
  for (const float factor : {0.01f, 1.f, 10.f, 100.f, 1e30f, 1e-30f}) {
    SCOPED_TRACE(factor);
    auto q = random_bf16(rng, tokens * heads * head_dim, 1.f);
    for (bf16& v : q) v = to_bf16(to_float(v) * factor);
    std::fill(q.begin(), q.begin() + head_dim, bf16{0});
    std::vector<int32_t> selected;
    for (int64_t i = 0; i < tokens * top_k; ++i)
      selected.push_back(i % 11 == 3 ? kNoEntry : static_cast<int32_t>(i % top_k + 5));
    expect_rows_agree(sparse_attention_rows(), std::vector<bf16>(q.size()), [&](auto& out) {
      return SparseAttentionParams{.q = {q.data(), {tokens, heads, head_dim}},
                                   .sink = {sink.data(), heads},
                                   .scale = 0.1f,
                                   .window = 16,
                                   .lane = {lane.data(), {tokens}},
                                   .window_end = {end.data(), {tokens}},
                                   .num_fresh = {fresh.data(), {tokens}},
                                   .ring = caches.ring,
                                   .selected = {selected.data(), {tokens, top_k}},
                                   .global = caches.global,
                                   .out = {out.data(), {tokens, heads, head_dim}}};
    });
  }
}

// The widths that tensor rows are made for, with lists from empty to full, one or more heads short of a tile; a token's
// result is the same alone and among others.
TEST(SparseAttention, EveryRowAgreesAtTheReleasedWidths) {
  Rng rng(105);
  const int64_t head_dim = 512, tokens = 5, top_k = 192;
  const int window = 128;
  Caches caches(rng, head_dim, 300, 400, 192, 64);
  for (const auto& [heads, block_rows] : {std::pair<int64_t, int>{64, 0}, {64, 5}, {70, 0}}) {
    const auto q = random_bf16(rng, tokens * heads * head_dim, 1.f);
    const auto sink = random_f32(rng, heads, 1.f);
    const std::vector<int32_t> lane = {0, 1, 0, 0, 1}, end = {3, 230, 2, 0, 290}, fresh_count(tokens, 0),
                               block_begin(tokens, 1);
    std::vector<int32_t> selected;
    for (int64_t t = 0; t < tokens; ++t)
      for (int64_t i = 0; i < top_k; ++i)
        selected.push_back(i < t * 48 - (t == 3) * 144 ? static_cast<int32_t>(2 * i + t) : kNoEntry);
    std::vector<uint8_t> fresh;
    for (int64_t i = 0; i < 8; ++i)
      fresh.insert(fresh.end(), caches.window_row(0, 40 + i), caches.window_row(0, 40 + i) + caches.window_bytes());
    caches.write_ring(1, 98, 290);
    caches.write_ring(0, 0, 3);
    const auto params = [&](std::vector<bf16>& out, int64_t first, int64_t count) {
      const auto rows = [&](const std::vector<int32_t>& v) {
        return View<const int32_t, dim::tokens>(v.data() + first, {count});
      };
      return SparseAttentionParams{.q = {q.data() + first * heads * head_dim, {count, heads, head_dim}},
                                   .sink = {sink.data(), heads},
                                   .scale = 0.0442f,
                                   .window = window,
                                   .lane = rows(lane),
                                   .window_end = rows(end),
                                   .num_fresh = rows(fresh_count),
                                   .fresh = {fresh.data(), {8, caches.window_bytes()}},
                                   .ring = caches.ring,
                                   .selected = {selected.data() + first * top_k, {count, top_k}},
                                   .global = caches.global,
                                   .block_rows = block_rows,
                                   .block_begin = rows(block_begin),
                                   .out = {out.data(), {count, heads, head_dim}}};
    };
    expect_rows_agree(sparse_attention_rows(), std::vector<bf16>(q.size()),
                      [&](auto& out) { return params(out, 0, tokens); });
    on_every_row<SparseAttentionParams>(sparse_attention_rows(), [&](const auto& row, const ExecutionContext& context) {
      std::vector<bf16> all(q.size()), alone(static_cast<size_t>(heads * head_dim));
      row.launch(context, params(all, 0, tokens));
      row.launch(context, params(alone, 4, 1));
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), all.begin() + 4 * heads * head_dim));
    });
  }
}

// Bounded replay: positions below window_begin are missing, never read.
TEST(SparseAttention, PositionsBelowWindowBeginAreMissing) {
  Rng rng(102);
  Caches caches(rng, 64, 40, 8, 24, 8);
  const auto q = random_bf16(rng, 2 * 64, 1.f);
  const std::vector<float> sink = {0.3f, -0.2f};
  const std::vector<int32_t> lane = {0}, end = {30}, begin = {25}, fresh = {0};
  caches.write_ring(0, 25, 30);
  std::vector<const bf16*> list;
  for (int64_t p = 25; p < 30; ++p) list.push_back(caches.window_value(0, p));
  on_every_row<SparseAttentionParams>(sparse_attention_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<bf16> out(128);
    row.launch(context, {.q = {q.data(), {1, 2, 64}},
                         .sink = {sink.data(), 2},
                         .scale = 0.125f,
                         .window = 16,
                         .lane = {lane.data(), {1}},
                         .window_end = {end.data(), {1}},
                         .window_begin = {begin.data(), {1}},
                         .num_fresh = {fresh.data(), {1}},
                         .ring = caches.ring,
                         .out = {out.data(), {1, 2, 64}}});
    for (int64_t h = 0; h < 2; ++h) {
      const auto exact = attend(&q[static_cast<size_t>(h * 64)], list, 64, 0.125f, sink[static_cast<size_t>(h)]);
      for (int64_t d = 0; d < 64; ++d)
        EXPECT_NEAR(to_float(out[static_cast<size_t>(h * 64 + d)]), exact[static_cast<size_t>(d)], 0.01);
    }
  });
}

// Draft form: every query of a block sees the ring up to the last committed position and all rows of its own block.
TEST(SparseAttention, DraftQueriesSeeTheWholeBlock) {
  Rng rng(103);
  const int64_t heads = 2, head_dim = 64, block = 3;
  Caches caches(rng, head_dim, 40, 8, 24, 8);
  const auto q = random_bf16(rng, 2 * block * heads * head_dim, 1.f);
  const std::vector<float> sink = {0.3f, -0.2f};
  for (const int32_t committed : {1, 5, 16, 30}) {
    for (int64_t l = 0; l < 2; ++l) caches.write_ring(l, committed - 16, committed);
    std::vector<uint8_t> fresh;  // two blocks, of lanes 1 and 0; rows borrowed from positions 33.. of the lane
    for (const int64_t l : {1, 0})
      fresh.insert(fresh.end(), caches.window_row(l, 33), caches.window_row(l, 33) + block * caches.window_bytes());
    const std::vector<int32_t> lane = {1, 1, 1, 0, 0, 0}, end(6, committed), num_fresh(6, 0),
                               begin = {0, 0, 0, 3, 3, 3};
    on_every_row<SparseAttentionParams>(sparse_attention_rows(), [&](const auto& row, const ExecutionContext& context) {
      std::vector<bf16> out(q.size());
      const SparseAttentionParams p{.q = {q.data(), {6, heads, head_dim}},
                                    .sink = {sink.data(), heads},
                                    .scale = 0.125f,
                                    .window = 16,
                                    .lane = {lane.data(), {6}},
                                    .window_end = {end.data(), {6}},
                                    .num_fresh = {num_fresh.data(), {6}},
                                    .fresh = {fresh.data(), {6, caches.window_bytes()}},
                                    .ring = caches.ring,
                                    .block_rows = block,
                                    .block_begin = {begin.data(), {6}},
                                    .out = {out.data(), {6, heads, head_dim}}};
      ASSERT_TRUE(check(p).ok()) << check(p).message();
      row.launch(context, p);
      for (int64_t t = 0; t < 6; ++t) {
        std::vector<const bf16*> list;
        for (int64_t p2 = std::max(0, committed - 16); p2 < committed; ++p2)
          list.push_back(caches.window_value(lane[static_cast<size_t>(t)], p2));
        for (int64_t i = 0; i < block; ++i) list.push_back(caches.window_value(lane[static_cast<size_t>(t)], 33 + i));
        for (int64_t h = 0; h < heads; ++h) {
          const size_t at = static_cast<size_t>((t * heads + h) * head_dim);
          const auto exact = attend(&q[at], list, head_dim, 0.125f, sink[static_cast<size_t>(h)]);
          for (int64_t d = 0; d < head_dim; ++d)
            EXPECT_NEAR(to_float(out[at + static_cast<size_t>(d)]), exact[static_cast<size_t>(d)], 0.01);
        }
      }
    });
  }
}

TEST(SparseAttention, RefusesABlockOutsideTheFreshRows) {
  std::vector<bf16> q(64), out(64);
  std::vector<float> sink(1);
  std::vector<uint8_t> fresh(66);
  std::vector<int32_t> zero = {0}, begin = {0};
  const SparseAttentionParams p{.q = {q.data(), {1, 1, 64}},
                                .sink = {sink.data(), 1},
                                .lane = {zero.data(), {1}},
                                .window_end = {zero.data(), {1}},
                                .num_fresh = {zero.data(), {1}},
                                .fresh = {fresh.data(), {1, 66}},
                                .block_rows = 2,
                                .block_begin = {begin.data(), {1}},
                                .out = {out.data(), {1, 1, 64}}};
  EXPECT_EQ(check_values(p).message(), "block_begin(0) is 0, expected 2 rows of the 1 fresh rows");
}

TEST(SparseAttention, RefusesAWindowThatTheRingCannotHold) {
  std::vector<bf16> q(64), out(64);
  std::vector<float> sink(1);
  std::vector<uint8_t> ring(8 * 66);
  std::vector<int32_t> zero = {0}, end = {20};
  SparseAttentionParams p{.q = {q.data(), {1, 1, 64}},
                          .sink = {sink.data(), 1},
                          .window = 16,
                          .lane = {zero.data(), {1}},
                          .window_end = {end.data(), {1}},
                          .num_fresh = {zero.data(), {1}},
                          .out = {out.data(), {1, 1, 64}}};
  EXPECT_EQ(check_values(p).message(), "ring: capacity is 0, expected at least the 16 positions that token 0 reads");
  p.ring = {ring.data(), 0, 66, 8};
  EXPECT_EQ(check_values(p).message(), "ring: capacity is 8, expected at least the 16 positions that token 0 reads");
}

}  // namespace deepinfer
