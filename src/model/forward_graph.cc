// SPDX-License-Identifier: MIT
// Steps as recorded graphs, on devices that have them.
#include <algorithm>

#include "model/forward_state.h"

namespace deepinfer {

// At most a quarter of the work is padding. Beyond, rows are prompt chunks, whose size repeats.
int64_t padded_size(int64_t num, int64_t most) {
  const int64_t step = num <= 8 ? 1 : num <= 32 ? 4 : num <= 512 ? 16 : 1;
  return std::min(round_up(num, step), std::max(num, most));
}

// Everything that addresses and sizes of a step's launches depend on. Empty: a step whose scores are cut into several
// tiles, or that scores row by row; those depend on every row's length.
std::vector<int64_t> step_shape(const Forward::State& state) {
  if (state.options.reproduces_published_key_slot) return {};
  const int64_t listed = state.config.candidate_blocks * state.config.candidate_block_size;
  std::vector<int64_t> shape = {0, state.all.table.num_rows(), state.decoder.table.num_rows(), state.num_head_rows,
                                state.work.pre.data() < state.work.next_pre.data()};
  for (const GroupTable& groups : state.groups) shape.push_back(groups.num_groups());
  for (int s = 0; s < state.roles.num_sources(); ++s)
    for (const StepRows* rows : {&state.all, &state.boundary}) {
      if (rows == &state.boundary && !state.drops_rows) continue;
      const int32_t visible = rows->table.max_visible(s);
      const int64_t width = score_width(state, visible);
      if (rows->table.num_rows() * width > state.options.score_entries_max) return {};
      shape.insert(shape.end(), {width, visible > listed});
    }
  return shape;
}

// On a device work of a shape seen before is a graph: its addresses and sizes follow from the shape, its values stand
// in tables that were filled before.
Status run_recorded(Forward::State& state, const std::vector<int64_t>& shape, const std::function<Status()>& ops) {
  if (shape.empty() || state.device.is_host() || !state.options.records_graphs || state.trace) return ops();
  if (state.graphs.size() >= kGraphsMax) state.graphs.clear();
  StepGraph& graph = state.graphs[shape];
  if (graph.recorded) {
    if (graph.swaps_pre) std::swap(state.work.pre, state.work.next_pre);
    state.rows = graph.rows;
    graph.recorded->launch();
    return state.device.status();
  }
  if (!graph.has_run) {  // working memory grows and code is loaded outside of a recording
    graph.has_run = true;
    return ops();
  }
  const float* pre = state.work.pre.data();
  state.device.begin_graph();
  const Status status = ops();
  graph.recorded = state.device.end_graph();
  TRY(status);
  TRY(state.device.status());
  graph.swaps_pre = state.work.pre.data() != pre;
  graph.rows = state.rows;
  graph.recorded->launch();
  return state.device.status();
}

}  // namespace deepinfer
