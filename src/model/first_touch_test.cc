// SPDX-License-Identifier: MIT
#include "model/first_touch.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace deepinfer {
namespace {

ModelWeights open_model() {
  Checkpoint checkpoint = Checkpoint::open(std::string(DEEPINFER_TESTDATA) + "/model_a").value();
  return ModelWeights::bind(std::make_shared<const Checkpoint>(std::move(checkpoint))).value();
}

// Bytes of the tensor that pieces cover; a byte that two of them cover counts twice.
size_t covered(const std::vector<std::span<const uint8_t>>& pieces, std::span<const uint8_t> tensor) {
  size_t bytes = 0;
  for (const auto& piece : pieces) {
    const uint8_t *begin = std::max(piece.data(), tensor.data()),
                  *end = std::min(piece.data() + piece.size(), tensor.data() + tensor.size());
    if (begin < end) bytes += static_cast<size_t>(end - begin);
  }
  return bytes;
}

TEST(FirstTouch, CoversEveryTensorOnceButEngramTables) {
  const ModelWeights weights = open_model();
  for (const bool with_experts : {true, false}) {
    const auto pieces = first_touch_pieces(weights, with_experts);
    size_t num_left_out = 0;
    for (const StoredTensor& tensor : weights.checkpoint().tensors()) {
      const std::string& name = tensor.info.name;
      const bool is_left_out = name.find(".engram.embed.") != std::string::npos ||
                               (!with_experts && name.find(".experts.") != std::string::npos);
      const auto bytes = weights.checkpoint().bytes(tensor);
      EXPECT_EQ(covered(pieces, bytes), is_left_out ? 0 : bytes.size()) << name;
      num_left_out += is_left_out;
    }
    EXPECT_GT(num_left_out, 0u);
    for (const auto& piece : pieces) EXPECT_LE(piece.size(), size_t{4} << 20);
  }
}

TEST(FirstTouch, ReadsAllAndTellsHowFarItIs) {
  const ModelWeights weights = open_model();
  const auto pieces = first_touch_pieces(weights, true);
  int64_t bytes = 0;
  for (const auto& piece : pieces) bytes += static_cast<int64_t>(piece.size());
  for (const int num_threads : {1, 3}) {
    ThreadPool pool(num_threads);
    int64_t last = 0;
    EXPECT_TRUE(first_touch(pieces, pool, [&](int64_t done, int64_t all) {
      EXPECT_EQ(all, bytes);
      EXPECT_GT(done, last);
      last = done;
      return true;
    }));
    EXPECT_EQ(last, bytes);
  }
}

TEST(FirstTouch, EndsWhereItsCallerSays) {
  const ModelWeights weights = open_model();
  const auto pieces = first_touch_pieces(weights, true);
  ThreadPool pool(1);
  int num_calls = 0;
  EXPECT_FALSE(first_touch(pieces, pool, [&](int64_t, int64_t) {
    ++num_calls;
    return false;
  }));
  EXPECT_EQ(num_calls, 1);
}

}  // namespace
}  // namespace deepinfer
