// SPDX-License-Identifier: MIT
// Test only: a scheduler and an engine made of arithmetic, step by step in virtual time.
#pragma once

#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "scheduler/fake_engine.h"

namespace deepinfer {

// Drives a scheduler to the end of its requests in virtual time and keeps all outputs. `num_ahead` steps are under way
// while the next is planned.
struct Driver {
  Scheduler& scheduler;
  FakeEngine engine;
  int64_t num_ahead = 0;
  int64_t now_ns = 0;
  bool takes_predicted_time = false;  // steps last as long as the curve says, not 1 ms
  std::map<SequenceId, std::vector<TokenId>> known = {}, outputs = {};
  std::map<SequenceId, SequenceRequest> requests = {};
  std::map<SequenceId, SequenceEnd> finished = {};
  struct UnderWay {
    StepOutput output;
    std::vector<BlockId> blocks = {};
    int64_t duration_ns = 1'000'000;
  };
  std::deque<UnderWay> under_way = {};

  Status submit(const SequenceRequest& r) {
    const Status status = scheduler.submit(r, now_ns);
    if (!status.ok()) return status;
    known[r.id] = r.prompt;
    requests[r.id] = r;
    return {};
  }
  void deliver(const std::vector<SequenceDelta>& deltas) {
    for (const SequenceDelta& delta : deltas) {
      CHECK(!finished.contains(delta.id));  // nothing comes after the end
      auto& out = outputs[delta.id];
      out.insert(out.end(), delta.tokens.begin(), delta.tokens.end());
      auto& tokens = known[delta.id];
      tokens.insert(tokens.end(), delta.tokens.begin(), delta.tokens.end());
      if (delta.finished) finished[delta.id] = *delta.finished;
    }
  }
  // No block that a step under way reads or writes may have been given back.
  void check_blocks(const PrefixCache& cache) const {
    for (const UnderWay& step : under_way)
      for (const BlockId block : step.blocks) CHECK(cache.pool().num_references(block) > 0);
  }
  int64_t predicted_ns(const Batch& batch, const StepOutput& output) const {
    StepShape shape;
    shape.num_sequences = static_cast<int64_t>(batch.sequences.size());
    for (size_t i = 0; i < batch.sequences.size(); ++i) {
      const BatchSequence& rows = batch.sequences[i];
      const bool is_prompt = !rows.follows && rows.num_logits_rows < rows.rows.size();
      shape.num_drafting += rows.draft;
      if (is_prompt) shape.chunks.push_back({rows.rows.size(), rows.position_begin, rows.limits.decoder_begin});
      else shape.num_decode_rows += output.sequences[i].num_rows;
    }
    return scheduler.curve().predict_ns(shape);
  }
  void commit_oldest() {
    std::vector<SequenceDelta> deltas;
    now_ns += under_way.front().duration_ns;
    scheduler.commit(under_way.front().output, now_ns, deltas);
    move_states();
    under_way.pop_front();
    deliver(deltas);
  }
  void move_states() {
    const std::vector<StateMove> moves = scheduler.take_state_moves();
    engine.save(moves);
    engine.restore(moves, known, requests);
  }
  // Offloads are done before the step; loads and keeps land every `load_steps` steps, or when nothing else can run.
  void start_copies(PrefixCache& cache) {
    for (const BlockCopy& copy : scheduler.take_copies()) {
      if (copy.direction != BlockCopy::Direction::kOffload) {
        copies.push_back(copy);
        continue;
      }
      engine.copy(copy);
      cache.finish_copy(copy);
    }
    for (const BlockCopy& copy : cache.take_keeps(num_keeps)) copies.push_back(copy);
  }
  void land_copies(PrefixCache& cache) {
    for (const BlockCopy& copy : std::exchange(copies, {})) {
      engine.copy(copy);
      cache.finish_copy(copy);
    }
  }
  std::vector<BlockCopy> copies = {};  // under way
  int64_t num_keeps = 0, load_steps = 1, num_steps = 0;
  // Plans a step and commits one; false when there was nothing to run.
  bool step(PrefixCache& cache) {
    Batch batch;
    scheduler.plan(now_ns, batch);
    check_blocks(cache);
    const std::vector<StateMove> moves = scheduler.take_state_moves();
    engine.save(moves);
    start_copies(cache);
    engine.restore(moves, known, requests);
    deliver(scheduler.take_finished());
    const bool any = !batch.empty() || !under_way.empty() || !copies.empty();
    if (!batch.empty()) {
      under_way.push_back({engine.run(batch, known, requests)});
      if (takes_predicted_time) under_way.back().duration_ns = predicted_ns(batch, under_way.back().output);
      for (const BatchSequence& rows : batch.sequences)
        under_way.back().blocks.insert(under_way.back().blocks.end(), rows.blocks->blocks().begin(),
                                       rows.blocks->blocks().end());
    }
    const size_t stay = batch.empty() || scheduler.wants_drain() ? 0 : static_cast<size_t>(num_ahead);
    while (under_way.size() > stay) commit_oldest();
    check_blocks(cache);
    if (batch.empty() || ++num_steps % load_steps == 0) land_copies(cache);
    return any;
  }
};

}  // namespace deepinfer
