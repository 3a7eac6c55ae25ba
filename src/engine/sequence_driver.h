// SPDX-License-Identifier: MIT
// Test only: drives one sequence through an engine step by step, with its own blocks and limits.
#pragma once

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "engine/engine.h"

namespace deepinfer {

class SequenceDriver {
 public:
  SequenceDriver(Engine& engine, int32_t lane, BlockTable blocks, SamplingParams params = greedy())
      : engine_(engine), lane_(lane), blocks_(std::move(blocks)) {
    const Status status = engine.admit({.lane = lane, .params = std::move(params)});
    EXPECT_TRUE(status.ok()) << status.message();
  }
  static SamplingParams greedy() {
    SamplingParams params;
    params.temperature = 0;
    return params;
  }

  RowLimits limits;
  std::vector<TokenId> history;
  bool draft = true;

  // Rows at `position`; the last num_logits of them give logits, kept in `logits`, and are picked from.
  SequenceOutput run(std::vector<TokenId> tokens, int64_t position, int64_t num_logits,
                     std::optional<TokenId> anchor = {}) {
    Batch batch{.tokens = std::move(tokens)};
    batch.sequences.push_back({.lane = lane_,
                               .blocks = &blocks_,
                               .position_begin = position,
                               .rows = {0, batch.num_rows()},
                               .num_logits_rows = num_logits,
                               .limits = limits,
                               .history = history,
                               .draft = draft && num_logits > 0,
                               .draft_anchor = anchor});
    Status status = engine_.launch(batch);
    EXPECT_TRUE(status.ok()) << status.message();
    if (!status.ok()) return {};
    status = engine_.sample(nullptr);
    EXPECT_TRUE(status.ok()) << status.message();
    const auto view = engine_.logits();
    logits.assign(view.data, view.data + view.num_elements());
    auto output = engine_.collect();
    EXPECT_TRUE(output.ok());
    return output.ok() ? output->sequences[0] : SequenceOutput{};
  }

  std::vector<float> logits;

 private:
  Engine& engine_;
  int32_t lane_;
  BlockTable blocks_;
};

}  // namespace deepinfer
