// SPDX-License-Identifier: MIT
// Engram in the forward pass (model.md 3.10): which rows a step needs, how they come to the device, the sublayer.
#include <algorithm>
#include <string>

#include "kernels/op_profile.h"
#include "model/forward_state.h"

namespace deepinfer {

using State = Forward::State;

Status hash_engram_rows(State& state, const RowBatch& batch) {
  if (state.config.engram.empty()) return {};
  const EngramHasher& hasher = *state.parts.hasher;
  const int64_t look_back = hasher.look_back(), per_token = hasher.rows_per_token();
  if (static_cast<int64_t>(batch.ngrams.size()) != batch.num_rows() * look_back)
    return invalid_argument("batch: " + std::to_string(batch.ngrams.size()) + " n-gram tokens, expected " +
                            std::to_string(batch.num_rows() * look_back));
  if (!state.device_hasher.empty()) {
    std::ranges::copy(batch.ngrams, state.step.ngrams.data());
    for (int64_t row = batch.num_rows(); row < state.all.table.num_rows(); ++row)
      std::copy_n(state.step.ngrams.data(), look_back, state.step.ngrams.data() + row * look_back);
    if (!state.trace) return {};
  }
  for (int table = 0; table < hasher.num_tables(); ++table) {
    int64_t* ids = &state.work.engram_ids[table * state.options.rows_max * per_token];
    for (int64_t row = 0; row < batch.num_rows(); ++row)
      hasher.rows(table, batch.ngrams.subspan(static_cast<size_t>(row * look_back), static_cast<size_t>(look_back)),
                  {ids + row * per_token, static_cast<size_t>(per_token)});
    for (int64_t row = batch.num_rows(); row < state.all.table.num_rows(); ++row)
      std::copy_n(ids, per_token, ids + row * per_token);
    if (!state.reads_tables())
      state.engram_tables[static_cast<size_t>(table)].prefetch(
          {ids, static_cast<size_t>(batch.num_rows() * per_token)});
  }
  return {};
}

// All rows of all tables through staging memory, or their numbers where the device reads the tables: behind this the
// step needs nothing from the host.
Status bring_engram_rows(State& state) {
  const EngramConfig& engram = state.config.engram;
  const int64_t per_token = engram.rows_per_token(), rows = state.all.table.num_rows();
  if (!state.device_hasher.empty()) return {};
  if (state.reads_tables()) {
    for (size_t table = 0; table < engram.layers.size(); ++table) {
      const int64_t first = static_cast<int64_t>(table) * state.options.rows_max * per_token;
      state.device.copy(state.work.device_engram_ids.data() + first, &state.work.engram_ids[first],
                        rows * per_token * static_cast<int64_t>(sizeof(int64_t)));
    }
    return {};
  }
  uint8_t* staged = state.work.staged_engram.data();
  int64_t end = 0;
  for (size_t table = 0; table < engram.layers.size(); ++table) {
    const int64_t first = static_cast<int64_t>(table) * state.options.rows_max * per_token;
    const EngramPlaces places = engram_places_of(engram, rows, static_cast<int>(table));
    TRY(state.engram_tables[table].read_rows({&state.work.engram_ids[first], static_cast<size_t>(rows * per_token)},
                                             staged + places.codes, staged + places.scales));
    end = places.end;
  }
  state.device.copy(state.work.engram_bytes.data(), staged, end);
  return {};
}

EngramPlaces engram_places_of(const EngramConfig& engram, int64_t num_rows, int table) {
  constexpr int64_t kAlignment = 256;
  const int64_t rows = num_rows * engram.rows_per_token(), codes = round_up(rows * engram.head_dim, kAlignment),
                scales = round_up(rows * num_scale_blocks(engram.head_dim), kAlignment),
                begin = table * (codes + scales);
  return {begin, begin + codes, begin + codes + scales};
}

EngramRows engram_rows_of(State& state, int table) {
  const EngramPlaces places = engram_places_of(state.config.engram, state.all.table.num_rows(), table);
  return {state.work.engram_bytes.data() + places.codes, state.work.engram_bytes.data() + places.scales};
}

Status Forward::inject_engram(int layer) {
  State& state = *state_;
  const int table = state.role(layer).engram;
  const int64_t rows = state.num_rows();
  if (table < 0 || rows == 0) return {};
  const EngramConfig& engram = state.config.engram;
  const EngramWeights& weights = state.layer_weights(layer).engram;
  Workspace& work = state.work;
  const int64_t per_token = engram.rows_per_token(), hidden = state.config.hidden, streams = state.config.num_streams;
  const int64_t* ids = &work.engram_ids[table * state.options.rows_max * per_token];
  if (state.trace) state.trace({layer, "engram_rows", DType::kI64, ids, {rows, per_token}});
  // On the host rows are read where they are needed, so that begin()'s prefetch has time; begin() brought them to a
  // device.
  const EngramRows read = engram_rows_of(state, table);
  if (state.device.is_host()) {
    const ProfiledPart part(state.context.profile, "engram read (host)");
    TRY(state.engram_tables[static_cast<size_t>(table)].read_rows({ids, static_cast<size_t>(rows * per_token)},
                                                                  read.codes, read.scales));
  }
  EngramRowsParams gather{.table = {read.codes, read.scales, rows * per_token, engram.head_dim},
                          .row = {work.engram_places.data(), {rows, per_token}},
                          .out = {work.engram_rows.data(), {rows, engram.row_columns()}}};
  if (state.reads_tables()) {
    gather.table = weights.table;
    gather.row.data = work.device_engram_ids.data() + table * state.options.rows_max * per_token;
  }
  state.kernels.engram_rows(state.context, gather);
  trace_rows(state, layer, "engram_emb", work.engram_rows.data(), {rows, engram.row_columns()});
  const int64_t width = (streams + 1) * hidden;
  state.kernels.linear(state.context, {.x = {work.engram_rows.data(), {rows, engram.row_columns()}},
                                       .weight = weights.wkv,
                                       .round_activation = true,
                                       .out = {work.engram_kv.data(), {rows, width}}});
  state.kernels.engram_gate(state.context, {.kv = {work.engram_kv.data(), {rows, width}},
                                            .q_weight = weights.q_weight,
                                            .k_weight = weights.k_weight,
                                            .is_image = state.rows->table.is_image(),
                                            .epsilon = state.config.norm_epsilon,
                                            .x = {work.streams.data(), {rows, streams, hidden}}});
  trace_rows(state, layer, "engram_out", work.streams.data(), {rows, streams, hidden});
  return {};
}

}  // namespace deepinfer
