// SPDX-License-Identifier: MIT
#include "engine/server_prediction.h"

#include <gtest/gtest.h>

#include "base/file.h"
#include "model/weight_table.h"

namespace deepinfer {

// The released model at 131,072 tokens: 3 sources of ratio 2 score 65,536 keys, layer 20 scores 131,072, four layers
// score 16,384 candidates each; 40 layers attend 128 window entries, 38 of them 512 others.
TEST(ServerPrediction, CountsWhatADecodedTokenReads) {
  const auto text = read_file(std::string(DEEPINFER_TESTDATA) + "/released/config.json");
  ASSERT_TRUE(text.ok());
  const auto config = parse_model_config(text.value());
  ASSERT_TRUE(config.ok()) << config.status().message();
  WeightViews nowhere;
  const ModelSize size = measure_model(config.value(), declare_weights(config.value(), nowhere));
  const ServerCpu cpu{"test", 10, 2.0, 100, 64};
  const ServerPrediction p = predict(config.value(), size, cpu, {.gemv = 0.5, .gemm = 0.25, .index = 0.5}, 131072);
  const double scored = 3 * 65536.0 + 131072 + 4 * 16384;
  EXPECT_DOUBLE_EQ(p.cache_bytes, 40.0 * 128 * 528 + 38.0 * 512 * 288 + scored * 68);
  EXPECT_DOUBLE_EQ(p.index_operations, scored * 32 * 128 * 2);
  EXPECT_NEAR(1 / p.decode_tokens_per_second,
              static_cast<double>(size.decode_bytes) / 42.5e9 + p.cache_bytes / 85e9 + p.index_operations / 1.28e12,
              1e-12);
}

}  // namespace deepinfer
