// SPDX-License-Identifier: MIT
#include "kernels/rope/rope.h"

#include "kernels/op_cases.h"

namespace deepinfer {
namespace {
using namespace testing_ops;

const Golden& released() {
  static const Golden golden("rope_released.safetensors");
  return golden;
}

constexpr RopeSpec kPlain{.theta = 10000, .rope_dim = 64};
constexpr RopeSpec kYarn{
    .theta = 160000, .rope_dim = 64, .factor = 16, .beta_fast = 32, .beta_slow = 1, .original_context = 65536};

struct Kind {
  const char* name;
  RopeSpec spec;
};
constexpr Kind kKinds[] = {{"plain", kPlain}, {"yarn", kYarn}};
}  // namespace

// model.md, Appendix A.
TEST(Rope, FrequenciesAreTheReleasedOnes) {
  float plain[32], yarn[32];
  rope_frequencies(kPlain, plain);
  rope_frequencies(kYarn, yarn);
  EXPECT_EQ(yarn[0], 1.f);
  for (const auto& [i, value] : {std::pair{1, .687656045f},
                                 {8, .0500000007f},
                                 {15, .00363553851f},
                                 {16, .00226562493f},
                                 {20, .000296977785f},
                                 {24, 1.95312532e-5f},
                                 {25, 5.37231244e-6f},
                                 {31, 5.68052940e-7f}})
    EXPECT_NEAR(yarn[i], value, 2e-7f * value) << i;
  EXPECT_NEAR(plain[1], .749894202f, 1e-7f);
  EXPECT_NEAR(plain[31], .000133352150f, 2e-11f);
  for (const Kind& kind : kKinds) {
    const auto angle = released().raw<float>(std::string("rope.") + kind.name + ".freq_pos1_angle");
    float ours[32];
    rope_frequencies(kind.spec, ours);
    for (int i = 0; i < 32; ++i)
      EXPECT_NEAR(ours[i], angle[static_cast<size_t>(i)], 1e-6f * angle[static_cast<size_t>(i)])
          << kind.name << " " << i;
  }
}

TEST(Rope, AnglesEqualTheGoldenOnesUpToAMillionTokens) {
  const auto positions = released().raw<int32_t>("rope.positions");
  const int64_t tokens = static_cast<int64_t>(positions.size());
  for (const Kind& kind : kKinds) {
    std::vector<float> frequency(32);
    rope_frequencies(kind.spec, frequency);
    const std::string prefix = std::string("rope.") + kind.name;
    const auto cos = released().raw<float>(prefix + ".cos"), sin = released().raw<float>(prefix + ".sin");
    on_every_row<RopeAnglesParams>(rope_angles_rows(), [&](const auto& row, const ExecutionContext& context) {
      std::vector<float> c(cos.size()), s(sin.size());
      row.launch(context, {.position = {positions.data(), {tokens}},
                           .frequency = {frequency.data(), {32}},
                           .cos = {c.data(), {tokens, 32}},
                           .sin = {s.data(), {tokens, 32}}});
      for (size_t i = 0; i < c.size(); ++i) {
        EXPECT_NEAR(c[i], cos[i], 2e-7f) << kind.name << " position " << positions[i / 32] << " pair " << i % 32;
        EXPECT_NEAR(s[i], sin[i], 2e-7f) << kind.name << " position " << positions[i / 32] << " pair " << i % 32;
      }
    });
  }
}

TEST(Rope, RotatedVectorsEqualTheGoldenOnes) {
  const auto x = released().raw<bf16>("rope.x");
  const int64_t tokens = 14;
  for (const Kind& kind : kKinds) {
    const std::string prefix = std::string("rope.") + kind.name;
    const auto cos = released().raw<float>(prefix + ".cos"), sin = released().raw<float>(prefix + ".sin");
    const auto y = released().raw<bf16>(prefix + ".y"), back = released().raw<bf16>(prefix + ".y_inverse_of_y");
    on_every_row<RopeParams>(rope_rows(), [&](const auto& row, const ExecutionContext& context) {
      std::vector<bf16> out = x;
      RopeParams p{
          .x = {out.data(), {tokens, 1, 128}}, .cos = {cos.data(), {tokens, 32}}, .sin = {sin.data(), {tokens, 32}}};
      row.launch(context, p);
      expect_near_exact(out, y);
      out = y;
      p.inverse = true;
      row.launch(context, p);
      expect_near_exact(out, back);
    });
  }
}

TEST(Rope, EveryRowEqualsTheReferenceOnOddSizes) {
  Rng rng(31);
  for (const int64_t pairs : {1, 3, 8, 11, 32}) {
    const int64_t tokens = 3, heads = 5, head_dim = 2 * pairs + 7;
    const auto cos = random_f32(rng, tokens * pairs, 0.6f), sin = random_f32(rng, tokens * pairs, 0.6f);
    for (const bool inverse : {false, true}) {
      expect_rows_agree(rope_rows(), random_bf16(rng, tokens * heads * head_dim, 2.f), [&](auto& x) {
        return RopeParams{.x = {x.data(), {tokens, heads, head_dim}},
                          .cos = {cos.data(), {tokens, pairs}},
                          .sin = {sin.data(), {tokens, pairs}},
                          .inverse = inverse};
      });
    }
  }
}

}  // namespace deepinfer
