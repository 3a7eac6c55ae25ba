// SPDX-License-Identifier: MIT
// What the engine is told once about a sequence, at admission; batches refer to it by lane from then on.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/ids.h"
#include "base/range.h"
#include "sampler/sampling_params.h"
#include "tensor/bfloat16.h"
#include "tensor/buffer.h"

namespace deepinfer {

// The embedding rows of one image span, START and END included, in the place of the table's rows.
struct LaneImage {
  Range positions;
  std::shared_ptr<const Buffer<bf16>>
      rows;  // [positions.size(), hidden]; shared with whoever admits the sequence again
};

struct LaneStart {
  int32_t lane = 0;
  SamplingParams params;
  std::vector<TokenId> prompt;    // for penalties only; may stay empty where params need no history
  std::vector<TokenId> output;    // picked before, when a sequence resumes: the noise goes on behind them
  std::vector<LaneImage> images;  // ascending, not overlapping
  // When the sequence ends: behind one of these tokens, or with so many output tokens. Nothing is picked behind its
  // end. For a sequence that rows may follow (batch.h); the caller may as well see to it itself.
  std::vector<TokenId> stop_ids;
  int64_t output_tokens_max = INT64_MAX;
};

}  // namespace deepinfer
