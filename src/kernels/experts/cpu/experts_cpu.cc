// SPDX-License-Identifier: MIT
// The CPU rows of the expert ops. All experts of a launch share two loops, so that threads spread over experts as well
// as over their outputs: the first forms a tile of gate and up, 32 outputs each, and from them at once the tile's block
// of hidden values, clamped, weighted, rounded to bf16 and prepared (rounded to e4m3 with its scale) for the second,
// the product with w2. Rows of x are prepared once, however many experts they go to.
#include <algorithm>

#include "base/range.h"
#include "kernels/experts/cpu/experts_kernels.h"
#include "kernels/experts/experts.h"
#include "kernels/linear/cpu/weight_tile.h"

namespace deepinfer {
namespace {

struct Level {
  const TileKernels& tiles;
  const ExpertKernels& kernels;
};

const uint16_t* words(const bf16* p) { return reinterpret_cast<const uint16_t*>(p); }
uint16_t* words(bf16* p) { return reinterpret_cast<uint16_t*>(p); }

// Up to kTileRows assignments of one expert.
struct Group {
  const ExpertMatrices* expert;
  int64_t begin, size;
};

struct Plan {
  const ExpertsParams& p;
  const Level& level;
  Group* groups;
  int64_t num_groups;
  bool planes;          // some group has more than a few rows, or weights in planes
  uint8_t *x, *hidden;  // prepared rows: of tokens, of assignments
  int64_t x_row_bytes, hidden_row_bytes;
  uint8_t* workspaces;
  int64_t workspace_bytes;
  uint8_t* workspace(int worker) const { return workspaces + worker * workspace_bytes; }
};

bool has_planes(const ExpertMatrices& expert) {
  return layout_of(expert.w1) == WeightLayout::kPlanes || layout_of(expert.w3) == WeightLayout::kPlanes ||
         layout_of(expert.w2) == WeightLayout::kPlanes;
}

int64_t fill_groups(const ExpertsParams& p, Group* groups) {
  int64_t num = 0;
  for (size_t e = 0; e < p.experts.size(); ++e)
    for (int64_t a = p.begin(e); a < p.begin(e + 1); a += kTileRows)
      groups[num++] = {&p.experts[e], a, std::min<int64_t>(kTileRows, p.begin(e + 1) - a)};
  return num;
}

void run_hidden_tile(const Plan& plan, const Group& group, int64_t tile, int worker) {
  const ExpertsParams& p = plan.p;
  const int64_t inner = num_outputs(group.expert->w1), begin = tile * kTileOut,
                size = std::min(kTileOut, inner - begin);
  const uint8_t* rows[kTileRows];  // as many as the tile has are set
  rows[0] = nullptr;
  for (int64_t r = 0; r < group.size; ++r) {
    const int64_t a = group.begin + r;
    rows[r] = plan.x + (p.token.data ? p.token(a) : a) * plan.x_row_bytes;
  }
  alignas(64) float gate[kTileRows * kTileOut], up[kTileRows * kTileOut];
  plan.level.tiles.multiply({group.expert->w1, begin, size}, rows, group.size, plan.workspace(worker), gate);
  plan.level.tiles.multiply({group.expert->w3, begin, size}, rows, group.size, plan.workspace(worker), up);
  for (int64_t r = 0; r < group.size; ++r) {
    const int64_t a = group.begin + r;
    uint16_t hidden[kTileOut];
    plan.level.kernels.swiglu(gate + r * kTileOut, up + r * kTileOut, p.swiglu_limit,
                              p.weight.data ? &p.weight(a) : nullptr, size, hidden);
    plan.level.tiles.prepare(hidden, begin, size, inner, true, plan.planes, plan.hidden + a * plan.hidden_row_bytes);
  }
}

void run_output_tile(const Plan& plan, const Group& group, int64_t tile, int worker) {
  const int64_t begin = tile * kTileOut, size = std::min(kTileOut, plan.p.out.size[1] - begin);
  const uint8_t* rows[kTileRows];  // as many as the tile has are set
  rows[0] = nullptr;
  for (int64_t r = 0; r < group.size; ++r) rows[r] = plan.hidden + (group.begin + r) * plan.hidden_row_bytes;
  alignas(64) float y[kTileRows * kTileOut];
  plan.level.tiles.multiply({group.expert->w2, begin, size}, rows, group.size, plan.workspace(worker), y);
  for (int64_t r = 0; r < group.size; ++r)
    plan.level.tiles.round_bf16(y + r * kTileOut, size, words(plan.p.out.row(group.begin + r) + begin));
}

void experts(const ExecutionContext& context, const ExpertsParams& p, const Level& level) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t hidden = p.x.size[1], assignments = p.out.size[0];
  int64_t inner = 0, num_groups_max = 0;
  for (size_t e = 0; e < p.experts.size(); ++e) {
    if (p.begin(e) == p.begin(e + 1)) continue;
    inner = std::max(inner, num_outputs(p.experts[e].w1));
    num_groups_max += ceil_div<int64_t>(p.begin(e + 1) - p.begin(e), kTileRows);
  }
  if (num_groups_max == 0) return;
  Plan plan{p, level, context.scratch->take<Group>(num_groups_max), 0};
  plan.num_groups = fill_groups(p, plan.groups);
  plan.planes = std::any_of(plan.groups, plan.groups + plan.num_groups,
                            [](const Group& g) { return g.size > kFewRows || has_planes(*g.expert); });
  plan.x_row_bytes = level.tiles.row_bytes(hidden);
  plan.hidden_row_bytes = level.tiles.row_bytes(inner);
  plan.x = context.scratch->take<uint8_t>(p.x.size[0] * plan.x_row_bytes);
  plan.hidden = context.scratch->take<uint8_t>(assignments * plan.hidden_row_bytes);
  plan.workspace_bytes = std::max(level.tiles.workspace_bytes(hidden), level.tiles.workspace_bytes(inner));
  plan.workspaces = context.scratch->take<uint8_t>(context.num_threads() * plan.workspace_bytes);
  const double work = static_cast<double>(assignments) * static_cast<double>(hidden * inner);
  for_each_item(context, p.x.size[0], static_cast<double>(p.x.num_elements()), [&](int64_t r, int) {
    level.tiles.prepare(words(p.x.row(r)), 0, hidden, hidden, true, plan.planes, plan.x + r * plan.x_row_bytes);
  });
  // Items run over the outputs of one group before the next: the weights are read in order.
  const int64_t hidden_tiles = ceil_div(inner, kTileOut), output_tiles = ceil_div(hidden, kTileOut);
  for_each_item(context, plan.num_groups * hidden_tiles, 2 * work, [&](int64_t item, int worker) {
    const Group& group = plan.groups[item / hidden_tiles];
    if (const int64_t tile = item % hidden_tiles; tile * kTileOut < num_outputs(group.expert->w1))
      run_hidden_tile(plan, group, tile, worker);
  });
  for_each_item(context, plan.num_groups * output_tiles, work, [&](int64_t item, int worker) {
    run_output_tile(plan, plan.groups[item / output_tiles], item % output_tiles, worker);
  });
}

void expert_combine(const ExecutionContext& context, const ExpertCombineParams& p, const ExpertKernels& kernels) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t choices = p.assignment.size[1], num_rows = choices + (p.shared.data ? 1 : 0);
  const uint16_t** rows = context.scratch->take<const uint16_t*>(context.num_threads() * num_rows);
  for_each_item(context, p.out.size[0], static_cast<double>(p.out.num_elements() * num_rows),
                [&](int64_t t, int worker) {
                  const uint16_t** list = rows + worker * num_rows;
                  for (int64_t c = 0; c < choices; ++c) list[c] = words(p.y.row(p.assignment(t, c)));
                  if (p.shared.data) list[choices] = words(p.shared.row(t));
                  kernels.sum_rows(list, num_rows, p.out.size[1], words(p.out.row(t)));
                });
}

}  // namespace

void experts_avx2(const ExecutionContext& c, const ExpertsParams& p) {
  experts(c, p, {tile_kernels_avx2(), experts_kernels_avx2()});
}
void experts_avx512(const ExecutionContext& c, const ExpertsParams& p) {
  experts(c, p, {tile_kernels_avx512(), experts_kernels_avx512()});
}
void experts_bf16(const ExecutionContext& c, const ExpertsParams& p) {
  // As linear_bf16. The experts of a layer stand in one layout.
  const bool planes = std::any_of(p.experts.begin(), p.experts.end(), has_planes);
  experts(c, p, {planes ? tile_kernels_avx512() : tile_kernels_bf16(), experts_kernels_avx512()});
}
void expert_combine_avx2(const ExecutionContext& c, const ExpertCombineParams& p) {
  expert_combine(c, p, experts_kernels_avx2());
}
void expert_combine_avx512(const ExecutionContext& c, const ExpertCombineParams& p) {
  expert_combine(c, p, experts_kernels_avx512());
}

}  // namespace deepinfer
