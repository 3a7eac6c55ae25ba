// SPDX-License-Identifier: MIT
// Runs batches on this rank. The engine owns all device state: the blocks of global KV, the lanes (window rings,
// compressor tails, Engram look-back, sampler position) and every work buffer, all allocated at open() from the limits,
// in the memory of the target: the host's or a device's. On a device the weights are brought there at open().
//
// One step: launch(batch), sample(masks), collect(). Steps are answered in order; collect() gives the oldest step that
// has been launched and not yet collected and waits for it, so a loop that keeps two steps in flight reads tokens one
// step late (decision 16). On the CPU launch() computes before it returns; the calls are the same.
//
// Results of a row depend on its sequence alone: not on the other rows, on how the prompt was cut, or on the thread
// count. Thread: one caller.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "base/token_masks.h"
#include "engine/lane_record.h"
#include "engine/lane_start.h"
#include "engram/token_map.h"
#include "kernels/indexer/indexer.h"
#include "model/cache_layout.h"
#include "model/device_weights.h"
#include "model/weights.h"
#include "scheduler/batch.h"
#include "scheduler/replay_plan.h"
#include "tensor/view.h"

namespace deepinfer {

struct EngineOptions {
  int num_threads = 0;  // compute threads; 0 = one per usable CPU; of 4 and more, has_thread leaves one to the caller
  bool has_thread = false;                            // computes apart from the caller
  Target target{Backend::kCpu, fastest_cpu_level()};  // every CPU level and every device gives the same bits
  CudaOptions cuda;                                   // of a kCuda target
  // Ops that take exact rows though the target is not exact: to find out which of them changes a result.
  std::vector<std::string> exact_ops;
  // On a device: guard zones around every buffer, looked at in every step (guarded_device.h). For debugging.
  bool checks_memory = false;
  int64_t rows_max = 512;        // rows of a step
  int64_t logits_rows_max = 64;  // logits rows of a step
  int64_t lanes_max = 16;
  int64_t blocks_max = 256;                                  // of 128 tokens
  int64_t context_max = 0;                                   // longest sequence in tokens; 0 = what blocks_max holds
  int64_t verify_rows_max = 0;                               // longest verify run; 0 = draft_run_max() + 1
  ScoreRounding score_rounding = ScoreRounding::kReference;  // docs/decisions says why
  // A step that takes longer is stopped between two layers: its output says where, its sequences cannot go on, others
  // are not touched. One that does not even stop then makes collect() fail after the same time again. 0 = no limit.
  int64_t step_ns_max = 0;
  // Of that limit and of the times of a StepOutput; outlives the engine. Null: the system's.
  const Clock* clock = nullptr;
  // On the host: bytes of routed experts that stay in memory, the others are read from the files when a row needs them
  // (StepOutput::expert_bytes_read); 0 = all. Never changes a result.
  int64_t expert_bytes_max = 0;
  std::optional<EngramTier> engram_tier;  // on a device; absent: its memory where the tables take an eighth at most
  bool picks_on_host = false;  // on a device: logits are brought to the host's sampler; never changes a result
  // Test only: called before each layer of each step, on the engine's thread.
  std::function<void(uint64_t step, int layer)> on_layer;
  // Test only: on decode rows that leave a compression group open, ratio > 1 index sources score against the keys that
  // were published last, as the published reference does (model.md 8.1). Single decode rows only.
  bool reproduces_published_key_slot = false;
  OpProfile* profile = nullptr;  // benches: filled while steps run
};

// What a sequence of a step may pick. Row i goes with logits row i of the sequence. Rows that are missing at the end
// are free: they stand behind a draft that the row before it refuses, so nothing is picked from them.
struct SequenceMask {
  const TokenMasks* rows = nullptr;  // null: everything is allowed
  // Not known yet: nothing is picked. The last row and its drafts count as not run and run again in the next step that
  // has rows of the sequence.
  bool is_late = false;
  // Tokens that nearly certainly come in this step and behind it. Those behind it become drafts where the picked ones
  // are the first of them, in place of the head's where these say otherwise. Borrowed as the rows are.
  std::span<const TokenId> foretold = {};
};
using StepMasks = std::vector<SequenceMask>;  // one per sequence of the batch, in its order

class Engine {
 public:
  // `token_map` gives the Engram class of every token id; not read for a model without Engram. Errors:
  // resource_exhausted when the buffers or the weights' place cannot be had, unimplemented, unavailable when the target
  // is a device that this machine or build does not have, invalid_argument.
  static Result<std::unique_ptr<Engine>> open(std::shared_ptr<const ModelWeights> weights, TokenMap token_map,
                                              const EngineOptions& options);
  ~Engine();

  const ModelConfig& config() const;
  const EngineOptions& options() const;
  const CacheLayout& cache_layout() const;
  ReplayGeometry replay_geometry() const;
  int64_t memory_bytes() const;  // what open() allocated, weights not counted
  std::string describe_kernels() const;

  // Gives a lane to a new sequence. Whatever stood in the lane is forgotten. No step under way may have rows of the
  // lane. Errors: invalid_argument.
  Status admit(LaneStart start);
  void release(int32_t lane);

  // What a lane and a block hold, as opaque bytes (lane_record.h, README.md). The lane has been admitted; its record is
  // taken or put when the steps launched before have run, which is waited for. import_lane leaves it as it was when the
  // record was made, so rows go on at `moment.position`; a tail record restores the encoder's windows alone. Errors:
  // invalid_argument, corruption (nothing changed then).
  std::string state_layout() const;  // names what records and blocks of this engine consist of
  int64_t lane_record_bytes(LaneRecordKind kind) const;
  Status export_lane(int32_t lane, const LaneMoment& moment, LaneRecordKind kind, std::span<uint8_t> out) const;
  Status import_lane(int32_t lane, const LaneMoment& moment, LaneRecordKind kind, std::span<const uint8_t> record);
  // cache_layout().block_bytes each; from any thread, while no step reads or writes the block.
  Status read_block(BlockId block, std::span<uint8_t> out) const;
  Status write_block(BlockId block, std::span<const uint8_t> bytes);

  // Copies the batch. Errors: invalid_argument, resource_exhausted; nothing has happened then. With a thread, what is
  // wrong with a row is told by collect() instead, and the engine is not usable any more.
  Status launch(const Batch& batch);
  // Picks tokens, settles which drafts stand, drafts. `masks` is borrowed until collect() of the step; null =
  // everything allowed.
  Status sample(const StepMasks* masks);
  // Errors: what the step ended with; unavailable when it hangs (step_ns_max).
  Result<StepOutput> collect();
  // The same into `output`, whose memory is used again.
  Status collect(StepOutput& output);
  int64_t num_steps() const;  // launched and not collected

  // Of the step sampled last, until the next launch; wait for it. Its logits in batch order, and its draft logits
  // [block][sequences that drafted] with the Markov term, position by position.
  View<const float, dim::rows, dim::vocab> logits() const;
  View<const float, dim::rows, dim::vocab> draft_logits() const;

  struct State;  // engine_state.h: for engine*.cc and tests
  State& state() { return *state_; }

 private:
  explicit Engine(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace deepinfer
