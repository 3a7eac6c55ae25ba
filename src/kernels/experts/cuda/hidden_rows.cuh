// SPDX-License-Identifier: MIT
// SwiGLU, weight and rounding behind the first product of experts: sums of gates and ups to the panels of the second.
#pragma once

#include "kernels/experts/cuda/expert_places.cuh"
#include "kernels/linear/cuda/panel_activations.cuh"
#include "kernels/linear/cuda/turned_sums.cuh"
#include "kernels/linear/cuda/warpgroup_product.cuh"

namespace deepinfer {

// Eight hidden channels of a row (counted in groups of eight of all experts), from `channel` on, into its panel.
template <WeightKind kKind>
__device__ void write_hidden(uint8_t* panels, int64_t num_groups, int64_t row, int channel, const uint4& eight) {
  const uint4 pairs = in_pairs<kKind>(eight);
  const auto put = [&](int i, uint32_t pair) {
    const int place = panel_place<kKind>(channel % 128 + first_of_pair<kKind>(i));
    const int64_t panel = channel / 128 * 2 + place / 64;
    *reinterpret_cast<uint32_t*>(panels + panel * num_groups * kGroupBytes + panel_byte(row, place % 64)) = pair;
  };
  put(0, pairs.x), put(1, pairs.y), put(2, pairs.z), put(3, pairs.w);
}

// A gate below its up, both bf16, for 32 channels of a row. Padded: rows fall into different banks.
inline constexpr int kStagePitch = 36;

// A warpgroup's 32 channels from `channel` on of eights of rows, the i-th from row first_row(i) of the tile on (negative:
// not to be written); rows 0..7 of a warp's sixteen outputs are gates, 8..15 their ups. Sums are turned in shared memory, kRows rows of kStagePitch words at a time, so that four
// threads have a row, eight channels each, and agree on its scale.
template <WeightKind kKind, int kRows, int kTokens, size_t kMax, typename FirstRow>
__device__ void emit_hidden(const ExpertTable<kMax>& table, const ExpertPlace& place, uint8_t* panels, int64_t num_groups,
                            uint32_t* stage, int channel, const FirstRow& first_row, const float (&sums)[kTokens / 2]) {
  const int thread = static_cast<int>(threadIdx.x) % 128, warp = thread / 32, g = thread % 32 / 4, c = thread % 4;
#pragma unroll
  for (int first = 0; first < kTokens; first += kRows) {
    wait_for_warpgroup();  // the stage has been read
#pragma unroll
    for (int i = 0; i < kRows / 4; ++i) {
      const float* s = sums + first / 2 + i / 2 * 4 + i % 2;
      stage[(i / 2 * 8 + 2 * c + i % 2) * kStagePitch + 8 * warp + g] = round_pair(s[0], s[2]);
    }
    wait_for_warpgroup();
#pragma unroll 1
    for (int in_stage = thread / 4; in_stage - thread / 4 < kRows; in_stage += 32) {
      const int r = first_row((first + in_stage) / 8) + in_stage % 8;
      const bool exists = in_stage < kRows && r >= 0 && r < place.num_rows;
      uint4 eight{0, 0, 0, 0};
      if (exists) {
        const float* weight = table.weight.data ? &table.weight(table.begin(place.expert) + place.row + r) : nullptr;
        const auto hidden = [&](uint32_t pair) {
          const float2 x = widen_pair(pair);
          return swiglu_inline(x.x, x.y, table.swiglu_limit, weight);
        };
        const uint4* both = reinterpret_cast<const uint4*>(stage + in_stage * kStagePitch + 8 * c);
        const uint4 low = both[0], high = both[1];
        eight = {round_pair(hidden(low.x), hidden(low.y)), round_pair(hidden(low.z), hidden(low.w)),
                 round_pair(hidden(high.x), hidden(high.y)), round_pair(hidden(high.z), hidden(high.w))};
      }
      eight = round_to_e4m3_by_four(eight);
      if (exists) write_hidden<kKind>(panels, num_groups, int64_t{8} * place.first_group + place.row + r, channel + 8 * c, eight);
    }
  }
}

}  // namespace deepinfer
