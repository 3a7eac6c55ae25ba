// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/lanes/exponential.h"
#include "kernels/lanes/lanes.h"
#include "kernels/vision_attention/vision_attention.h"

namespace deepinfer {
namespace {

// One query's running state.
struct Running {
  float max = -std::numeric_limits<float>::infinity(), sum = 0;
  std::vector<float> out;
};

void add_key_block(const VisionAttentionParams& p, int64_t query, int64_t head, Range keys, Running& state) {
  const int64_t head_dim = p.q.size[2];
  std::vector<float> scores(static_cast<size_t>(keys.size()));
  float max = state.max;
  for (int64_t j = 0; j < keys.size(); ++j) {
    float dot = 0;
    for (int64_t d = 0; d < head_dim; ++d)
      dot += to_float(p.q(query, head, d)) * to_float(p.k(keys.begin + j, head, d));
    scores[static_cast<size_t>(j)] = dot * p.scale;
    max = dot * p.scale > max ? dot * p.scale : max;
  }
  const float rescale = exp_in_lanes(state.max - max);
  LaneSum sum;
  for (float& o : state.out) o *= rescale;
  for (int64_t j = 0; j < keys.size(); ++j) {
    const float weight = exp_in_lanes(scores[static_cast<size_t>(j)] - max);
    sum.add(j, weight);
    for (int64_t d = 0; d < head_dim; ++d) {
      float& out = state.out[static_cast<size_t>(d)];
      out = std::fma(weight, to_float(p.v(keys.begin + j, head, d)), out);
    }
  }
  state.sum = state.sum * rescale + sum.total();
  state.max = max;
}

}  // namespace

void vision_attention_ref(const ExecutionContext&, const VisionAttentionParams& p) {
  for (const Range& image : p.images)
    for (int64_t head = 0; head < p.q.size[1]; ++head)
      for (int64_t query = image.begin; query < image.end; ++query) {
        Running state;
        state.out.assign(static_cast<size_t>(p.q.size[2]), 0.f);
        for (int64_t begin = image.begin; begin < image.end; begin += kVisionKeyBlock)
          add_key_block(p, query, head, {begin, std::min(begin + kVisionKeyBlock, image.end)}, state);
        for (int64_t d = 0; d < p.q.size[2]; ++d)
          p.out(query, head, d) = to_bf16(state.out[static_cast<size_t>(d)] / state.sum);
      }
}

}  // namespace deepinfer
