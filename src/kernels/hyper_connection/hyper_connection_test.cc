// SPDX-License-Identifier: MIT
#include "kernels/hyper_connection/hyper_connection.h"

#include "kernels/op_cases.h"

namespace deepinfer {
namespace {
using namespace testing_ops;
constexpr int64_t kTokens = 9, kStreams = 4, kHidden = 96;

// Outputs of one mixing, and the params over them.
struct Mix {
  Mix(int64_t tokens, int64_t streams)
      : pre(static_cast<size_t>(tokens * streams)),
        post(pre.size()),
        comb(static_cast<size_t>(tokens * streams * streams)),
        tokens_(tokens),
        streams_(streams) {}
  StreamMixParams params(const std::vector<bf16>& x, int64_t hidden, const std::vector<float>& fn,
                         const std::vector<float>& base, const std::vector<float>& scale) {
    const int64_t out = (2 + streams_) * streams_;
    return {.x = {x.data(), {tokens_, streams_, hidden}},
            .fn = {fn.data(), out, streams_ * hidden},
            .base = {base.data(), out},
            .scale = {scale.data(), 3},
            .pre = {pre.data(), {tokens_, streams_}},
            .post = {post.data(), {tokens_, streams_}},
            .comb = {comb.data(), {tokens_, streams_, streams_}}};
  }
  std::vector<float> pre, post, comb;
  int64_t tokens_, streams_;
};
}  // namespace

// The golden file gives the mixed values (after 1/rms), not fn: an fn whose row o has one entry reproduces them exactly
// enough.
TEST(StreamMix, CoefficientsOfGoldenMixedValuesAreTheGoldenOnes) {
  const auto mix = units().raw<float>("hc.mix"), base = units().raw<float>("hc.base"),
             scale = units().raw<float>("hc.scale");
  const auto pre = units().raw<float>("hc.pre"), post = units().raw<float>("hc.post"),
             comb = units().raw<float>("hc.comb");
  std::vector<bf16> x(static_cast<size_t>(kStreams * kHidden), to_bf16(0.f));
  x[0] = to_bf16(1.f);  // 1/rms = sqrt(size)
  const float rms_inverse = 1.f / std::sqrt(1.f / static_cast<float>(x.size()));
  for (int64_t t = 0; t < kTokens; ++t) {
    std::vector<float> fn(24 * x.size(), 0.f);
    for (size_t o = 0; o < 24; ++o) fn[o * x.size()] = mix[static_cast<size_t>(t) * 24 + o] / rms_inverse;
    on_every_row<StreamMixParams>(stream_mix_rows(), [&](const auto& row, const ExecutionContext& context) {
      Mix out(1, kStreams);
      row.launch(context, out.params(x, kHidden, fn, base, scale));
      expect_close(out.pre, {pre.begin() + t * 4, pre.begin() + t * 4 + 4}, 5e-5f);
      expect_close(out.post, {post.begin() + t * 4, post.begin() + t * 4 + 4}, 5e-5f);
      expect_close(out.comb, {comb.begin() + t * 16, comb.begin() + t * 16 + 16}, 5e-5f);
    });
  }
}

// Widths that tensor rows take, from one token to more than a tile.
TEST(StreamMix, EveryRowAgreesWhereTensorRowsRun) {
  Rng rng(43);
  for (const auto& [tokens, hidden] : {std::pair<int64_t, int64_t>{1, 1280}, {19, 128}}) {
    const auto x = random_bf16(rng, tokens * 4 * hidden, 1.f);
    const auto fn = random_f32(rng, 24 * 4 * hidden, 0.1f), base = random_f32(rng, 24, 1.f),
               scale = random_f32(rng, 3, 1.f);
    Mix out(tokens, 4);
    for (std::vector<float> Mix::*part : {&Mix::pre, &Mix::post, &Mix::comb})
      expect_rows_agree(stream_mix_rows(), out.*part, [&](auto& result) {
        StreamMixParams p = out.params(x, hidden, fn, base, scale);
        if (part == &Mix::pre) p.pre.data = result.data();
        if (part == &Mix::post) p.post.data = result.data();
        if (part == &Mix::comb) p.comb.data = result.data();
        return p;
      });
  }
}

// More tokens than a block of a device has on their way at a time.
TEST(StreamMix, EveryRowAgreesOnManyTokens) {
  Rng rng(44);
  const int64_t tokens = 500, hidden = 5120;
  const auto x = random_bf16(rng, tokens * 4 * hidden, 1.f);
  const auto fn = random_f32(rng, 24 * 4 * hidden, 0.1f), base = random_f32(rng, 24, 1.f),
             scale = random_f32(rng, 3, 1.f);
  Mix out(tokens, 4);
  expect_rows_agree(stream_mix_rows(), out.comb, [&](auto& result) {
    StreamMixParams p = out.params(x, hidden, fn, base, scale);
    p.comb.data = result.data();
    return p;
  });
}

// Device kernels divide tokens and columns otherwise from count to count: each way, with ends that are not full.
TEST(StreamMix, EveryRowAgreesHoweverTokensAreDivided) {
  Rng rng(45);
  for (const auto& [tokens, hidden] :
       {std::pair<int64_t, int64_t>{8, 272}, {65, 304}, {130, 80}, {513, 48}, {1060, 48}, {2117, 48}}) {
    const auto x = random_bf16(rng, tokens * 4 * hidden, 1.f);
    const auto fn = random_f32(rng, 24 * 4 * hidden, 0.1f), base = random_f32(rng, 24, 1.f),
               scale = random_f32(rng, 3, 1.f);
    Mix out(tokens, 4);
    for (std::vector<float> Mix::*part : {&Mix::pre, &Mix::post, &Mix::comb})
      expect_rows_agree(stream_mix_rows(), out.*part, [&](auto& result) {
        StreamMixParams p = out.params(x, hidden, fn, base, scale);
        if (part == &Mix::pre) p.pre.data = result.data();
        if (part == &Mix::post) p.post.data = result.data();
        if (part == &Mix::comb) p.comb.data = result.data();
        return p;
      });
  }
}

TEST(StreamMix, EveryRowEqualsTheReferenceOnOddSizes) {
  Rng rng(41);
  for (const int64_t streams : {1, 2, 4, 8}) {
    for (const auto& [tokens, hidden] :
         {std::pair<int64_t, int64_t>{1, 32}, {2, 3}, {3, 97}, {4, 32}, {5, 3}, {6, 97}, {13, 40}}) {
      const int64_t out = (2 + streams) * streams;
      const auto x = random_bf16(rng, tokens * streams * hidden, 1.f);
      const auto fn = random_f32(rng, out * streams * hidden, 0.1f), base = random_f32(rng, out, 1.f),
                 scale = random_f32(rng, 3, 1.f);
      Mix expected(tokens, streams);
      bool first = true;
      on_every_row<StreamMixParams>(stream_mix_rows(), [&](const auto& row, const ExecutionContext& context) {
        Mix mine(tokens, streams);
        row.launch(context, mine.params(x, hidden, fn, base, scale));
        if (first) expected = mine;
        first = false;
        EXPECT_EQ(mine.pre, expected.pre);
        EXPECT_EQ(mine.post, expected.post);
        EXPECT_EQ(mine.comb, expected.comb);
      });
    }
  }
}

// Sinkhorn ends on columns, so they sum to one (less epsilon); rows only approach it.
TEST(StreamMix, ColumnsOfTheCombinationSumToOne) {
  Rng rng(42);
  const auto x = random_bf16(rng, 4 * 64, 1.f);
  const auto fn = random_f32(rng, 24 * 256, 0.3f), base = random_f32(rng, 24, 1.f), scale = random_f32(rng, 3, 1.f);
  on_every_row<StreamMixParams>(stream_mix_rows(), [&](const auto& row, const ExecutionContext& context) {
    Mix out(1, 4);
    row.launch(context, out.params(x, 64, fn, base, scale));
    for (size_t j = 0; j < 4; ++j)
      EXPECT_NEAR(out.comb[j] + out.comb[4 + j] + out.comb[8 + j] + out.comb[12 + j], 1.f, 3e-6f);
  });
}

TEST(StreamCollapse, EqualsTheGoldenInput) {
  const auto x = units().raw<bf16>("hc.X"), u = units().raw<bf16>("hc.u");
  const auto pre = units().raw<float>("hc.pre");
  on_every_row<StreamCollapseParams>(stream_collapse_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<bf16> out(u.size());
    row.launch(context, {.x = {x.data(), {kTokens, kStreams, kHidden}},
                         .pre = {pre.data(), {kTokens, kStreams}},
                         .out = {out.data(), {kTokens, kHidden}}});
    expect_near_exact(out, u);
  });
}

TEST(StreamUpdate, EqualsTheGoldenStreams) {
  const auto x = units().raw<bf16>("hc.X"), y = units().raw<bf16>("hc.Y"), expected = units().raw<bf16>("hc.Xout");
  const auto post = units().raw<float>("hc.post"), comb = units().raw<float>("hc.comb");
  on_every_row<StreamUpdateParams>(stream_update_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<bf16> out = x;
    const View<bf16, dim::tokens, dim::streams, dim::hidden> in_place(out.data(), {kTokens, kStreams, kHidden});
    row.launch(context, {.x = in_place,
                         .y = {y.data(), {kTokens, kHidden}},
                         .post = {post.data(), {kTokens, kStreams}},
                         .comb = {comb.data(), {kTokens, kStreams, kStreams}},
                         .out = in_place});
    expect_near_exact(out, expected);
  });
}

// Every part of the result; widths that a device takes in one kernel, and others.
TEST(StreamAdvance, EveryRowEqualsTheReference) {
  Rng rng(45);
  const int64_t tokens = 3;
  for (const auto& [streams, hidden] :
       {std::pair<int64_t, int64_t>{4, 64}, {4, 1344}, {4, 5120}, {4, 5184}, {3, 64}, {4, 33}}) {
    const auto x = random_bf16(rng, tokens * streams * hidden, 1.f), y = random_bf16(rng, tokens * hidden, 1.f),
               weight = random_bf16(rng, hidden, 1.f);
    const auto post = random_f32(rng, tokens * streams, 1.f), pre = random_f32(rng, tokens * streams, 1.f),
               comb = random_f32(rng, tokens * streams * streams, 1.f);
    std::vector<bf16> collapsed(y.size()), other_streams(x.size()), other_input(y.size());
    const auto make = [&](bf16* out, bf16* input) {
      return StreamAdvanceParams{.update = {.x = {out, {tokens, streams, hidden}},
                                            .y = {y.data(), {tokens, hidden}},
                                            .post = {post.data(), {tokens, streams}},
                                            .comb = {comb.data(), {tokens, streams, streams}},
                                            .out = {out, {tokens, streams, hidden}}},
                                 .pre = {pre.data(), {tokens, streams}},
                                 .norm_weight = {weight.data(), hidden},
                                 .collapsed = {collapsed.data(), {tokens, hidden}},
                                 .input = {input, {tokens, hidden}}};
    };
    expect_rows_agree(stream_advance_rows(), x, [&](auto& out) { return make(out.data(), other_input.data()); });
    expect_rows_agree(stream_advance_rows(), y, [&](auto& input) {
      other_streams = x;
      return make(other_streams.data(), input.data());
    });
  }
}

TEST(StreamUpdate, EveryRowEqualsTheReferenceOnOddSizes) {
  Rng rng(43);
  for (const int64_t streams : {1, 3, 4}) {
    for (const int64_t hidden : {1, 15, 33, 130}) {
      const auto x = random_bf16(rng, 2 * streams * hidden, 1.f), y = random_bf16(rng, 2 * hidden, 1.f);
      const auto post = random_f32(rng, 2 * streams, 1.f), comb = random_f32(rng, 2 * streams * streams, 1.f);
      expect_rows_agree(stream_update_rows(), x, [&](auto& out) {
        return StreamUpdateParams{.x = {out.data(), {2, streams, hidden}},
                                  .y = {y.data(), {2, hidden}},
                                  .post = {post.data(), {2, streams}},
                                  .comb = {comb.data(), {2, streams, streams}},
                                  .out = {out.data(), {2, streams, hidden}}};
      });
      expect_rows_agree(stream_collapse_rows(), std::vector<bf16>(static_cast<size_t>(2 * hidden)), [&](auto& out) {
        return StreamCollapseParams{.x = {x.data(), {2, streams, hidden}},
                                    .pre = {post.data(), {2, streams}},
                                    .out = {out.data(), {2, hidden}}};
      });
    }
  }
}

}  // namespace deepinfer
