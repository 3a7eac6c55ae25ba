// SPDX-License-Identifier: MIT
// The definition is checked against a float64 recomputation, every other row against the definition, bit for bit.
#include "kernels/vision_attention/vision_attention.h"

#include "kernels/op_cases.h"

namespace deepinfer {
namespace {
using namespace testing_ops;

struct Inputs {
  int64_t tokens, heads, head_dim;
  std::vector<bf16> qkv;  // [tokens, 3, heads, head_dim]

  VisionAttentionParams params(std::span<const Range> images, bf16* out) const {
    const std::array<int64_t, 3> size = {tokens, heads, head_dim}, stride = {3 * heads * head_dim, head_dim, 1};
    const bf16* x = qkv.data();
    return {.q = {x, size, stride},
            .k = {x + heads * head_dim, size, stride},
            .v = {x + 2 * heads * head_dim, size, stride},
            .images = images,
            .scale = 1.f / std::sqrt(static_cast<float>(head_dim)),
            .out = {out, size}};
  }
};

Inputs make_inputs(int64_t tokens, int64_t heads, int64_t head_dim, uint64_t seed, float scale = 1.5f) {
  Rng rng(seed);
  return {tokens, heads, head_dim, random_bf16(rng, tokens * 3 * heads * head_dim, scale)};
}

std::vector<float> exact(const VisionAttentionParams& p, const Range& image, int64_t query, int64_t head) {
  std::vector<double> scores, out(static_cast<size_t>(p.q.size[2]), 0.0);
  double max = -1e300, sum = 0;
  for (int64_t j = image.begin; j < image.end; ++j) {
    double dot = 0;
    for (int64_t d = 0; d < p.q.size[2]; ++d)
      dot += double{to_float(p.q(query, head, d))} * double{to_float(p.k(j, head, d))};
    scores.push_back(dot * double{p.scale});
    max = std::max(max, scores.back());
  }
  for (int64_t j = image.begin; j < image.end; ++j) {
    const double weight = std::exp(scores[static_cast<size_t>(j - image.begin)] - max);
    sum += weight;
    for (int64_t d = 0; d < p.q.size[2]; ++d) out[static_cast<size_t>(d)] += weight * double{to_float(p.v(j, head, d))};
  }
  std::vector<float> result;
  for (const double o : out) result.push_back(static_cast<float>(o / sum));
  return result;
}

TEST(VisionAttention, AgreesWithADoublePrecisionRecomputation) {
  const Inputs in = make_inputs(700, 2, 32, 7);
  const Range images[] = {{0, 37}, {37, 700}};
  std::vector<bf16> out(700 * 2 * 32);
  const VisionAttentionParams p = in.params(images, out.data());
  on_every_row<VisionAttentionParams>(vision_attention_rows(), [&](const auto& row, const ExecutionContext& context) {
    row.launch(context, p);
    double error = 0, total = 0;
    for (const int64_t query : {0, 36, 37, 400, 699})
      for (int64_t head = 0; head < 2; ++head) {
        const std::vector<float> want = exact(p, query < 37 ? images[0] : images[1], query, head);
        for (int64_t d = 0; d < 32; ++d) {
          const double difference = double{to_float(p.out(query, head, d))} - double{want[static_cast<size_t>(d)]};
          error += difference * difference;
          total += double{want[static_cast<size_t>(d)]} * double{want[static_cast<size_t>(d)]};
        }
      }
    EXPECT_LT(std::sqrt(error / total), 0.002);  // the result is rounded to bf16
  });
}

TEST(VisionAttention, EveryRowEqualsTheReferenceOnOddSizes) {
  struct Case {
    int64_t heads, head_dim;
    std::vector<Range> images;
  };
  const Case cases[] = {{1, 16, {{0, 1}}},   {2, 16, {{0, 12}, {12, 25}}}, {4, 20, {{0, 23}, {23, 24}, {24, 49}}},
                        {1, 64, {{0, 513}}}, {3, 8, {{0, 0}, {0, 100}}},   {1, 4, {{3, 1030}}},
                        {2, 32, {{0, 512}}}, {1, 96, {{0, 17}, {20, 44}}}};
  for (const Case& c : cases) {
    const int64_t tokens = c.images.back().end;
    const Inputs in = make_inputs(tokens, c.heads, c.head_dim, 11, c.head_dim == 4 ? 12.f : 2.f);
    expect_rows_agree(vision_attention_rows(), std::vector<bf16>(static_cast<size_t>(tokens * c.heads * c.head_dim)),
                      [&](auto& out) { return in.params(c.images, out.data()); });
  }
}

// An image's rows are the same bits alone and among others.
TEST(VisionAttention, ImagesDoNotSeeEachOther) {
  const Inputs in = make_inputs(90, 2, 16, 3);
  const Range both[] = {{0, 40}, {40, 90}}, second[] = {{40, 90}};
  on_every_row<VisionAttentionParams>(vision_attention_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<bf16> together(90 * 32), alone(90 * 32);
    row.launch(context, in.params(both, together.data()));
    row.launch(context, in.params(second, alone.data()));
    EXPECT_TRUE(std::equal(alone.begin() + 40 * 32, alone.end(), together.begin() + 40 * 32));
    EXPECT_EQ(alone[0], bf16{0});
  });
}

TEST(VisionAttention, CheckNamesTheFirstDifference) {
  const Inputs in = make_inputs(10, 2, 16, 3);
  std::vector<bf16> out(10 * 32);
  const Range overlapping[] = {{0, 6}, {5, 10}}, beyond[] = {{0, 11}};
  EXPECT_EQ(check(in.params(overlapping, out.data())).message(), "images: range [5, 10) after 6 in 10 tokens");
  EXPECT_FALSE(check(in.params(beyond, out.data())).ok());
  VisionAttentionParams p = in.params({}, out.data());
  p.v.size[2] = 15;
  EXPECT_FALSE(check(p).ok());
}

TEST(VisionAttention, EstimateCountsFourFlopsPerPairAndChannel) {
  const Inputs in = make_inputs(30, 2, 16, 3);
  const Range images[] = {{0, 10}, {10, 30}};
  EXPECT_EQ(estimate(in.params(images, nullptr)).flops, 4.0 * (100 + 400) * 32);
}

}  // namespace
}  // namespace deepinfer
