// SPDX-License-Identifier: MIT
#include "kernels/embedding/embedding.h"

#include "kernels/op_cases.h"

namespace deepinfer {
namespace {
using namespace testing_ops;
}

TEST(Embedding, CopiesTokenAndImageRowsIntoEveryStream) {
  Rng rng(95);
  const auto table = random_bf16(rng, 5 * 33, 1.f), images = random_bf16(rng, 2 * 33, 1.f);
  const std::vector<TokenId> tokens = {4, 2, 0};
  const std::vector<int32_t> image_row = {-1, 1, -1};
  on_every_row<EmbeddingParams>(embedding_rows(), [&](const auto& row, const ExecutionContext& context) {
    std::vector<bf16> out(3 * 2 * 33);
    row.launch(context, {.embed = {table.data(), 5, 33},
                         .token = {tokens.data(), {3}},
                         .image_row = {image_row.data(), {3}},
                         .image_rows = {images.data(), {2, 33}},
                         .out = {out.data(), {3, 2, 33}}});
    for (size_t i = 0; i < out.size(); ++i) {
      const size_t t = i / 66, d = i % 33;
      EXPECT_EQ(out[i], t == 1 ? images[33 + d] : table[static_cast<size_t>(tokens[t]) * 33 + d]);
    }
  });
}

}  // namespace deepinfer
