// SPDX-License-Identifier: MIT
// What the prefill and decode benches share: the model opened and timed, and the bytes a step must move at least.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "base/bench.h"
#include "base/clock.h"
#include "base/philox.h"
#include "base/status.h"
#include "engine/engine.h"
#include "model/memory_plan.h"
#include "model/weight_table.h"

namespace deepinfer {

struct BenchModel {
  std::string name;  // folder
  std::shared_ptr<const ModelWeights> weights;
  std::unique_ptr<Engine> engine;
  double open_s = 0;  // checkpoint, weights and engine
};

// options.model, or golden model A; on a GPU with `--set backend=cuda`, on its tensor cores with
// `--set numerics=fast`, at a CPU level with `--set level=avx2`. Token classes are a stand-in: a bench needs no
// tokenizer. With a profile its steps fill it.
Result<BenchModel> open_bench_model(const BenchOptions& options, int64_t rows_max, int64_t lanes_max,
                                    OpProfile* profile = nullptr);

// Weights read by one step of `num_rows` rows: everything dense once (head and draft as asked), the experts that many
// rows are expected to choose, and `num_rows` rows of embedding and Engram. Caches are not counted.
double step_weight_bytes(const ModelWeights& weights, int64_t num_rows, bool with_draft);

// Sequences of random tokens in every lane, prefilled to `context` tokens; then steps of one row each.
class BenchBatch {
 public:
  BenchBatch(Engine& engine, int64_t num_sequences, int64_t blocks_each);
  Status prefill(int64_t context, int64_t chunk);  // logits of each last row
  // `num_rows` rows of every sequence: its next token, and drafts to verify, none of which stands.
  Status decode(bool drafts, int64_t num_rows = 1);
  const StepOutput& last_step() const { return last_step_; }
  // By the device's clock, since the prefill: the share of the time in which it had no step. 0 on the host.
  double device_idle_share() const {
    const double all = static_cast<double>(device_idle_ns_ + device_busy_ns_);
    return all > 0 ? static_cast<double>(device_idle_ns_) / all : 0;
  }

 private:
  Status run(const Batch& batch);
  Engine& engine_;
  std::vector<BlockTable> blocks_;
  StepOutput last_step_;
  int64_t position_ = 0;
  uint64_t step_ = 0;
  int64_t device_busy_ns_ = 0, device_idle_ns_ = 0;
};

// First appearance order is all that the hash asks of classes: id modulo their number.
inline Result<TokenMap> stand_in_classes(const ModelConfig& config) {
  if (config.engram.empty()) return TokenMap{};
  std::vector<int32_t> classes;
  for (int64_t id = 0; id < config.vocab_size; ++id)
    classes.push_back(static_cast<int32_t>(id % config.engram.num_token_classes));
  return token_map_from_classes(std::move(classes));
}

inline double expected_experts(double experts, double choices, double rows) {
  return experts * (1 - std::pow(1 - choices / experts, rows));
}

inline CpuLevel bench_level(const BenchOptions& options) {
  const auto forced = options.extra.find("level");
  const auto level = forced == options.extra.end() ? fastest_cpu_level() : parse_cpu_level(forced->second);
  return std::min(level.value_or(fastest_cpu_level()), machine_cpu_level());
}

// A GPU with `--set backend=cuda` (its tensor cores with `--set numerics=fast`), else the CPU at `--set level=`.
inline Target bench_target(const BenchOptions& options) {
  const auto backend = options.extra.find("backend"), numerics = options.extra.find("numerics");
  Target target = backend != options.extra.end() && backend->second == "cuda"
                      ? Target{Backend::kCuda}
                      : Target{Backend::kCpu, bench_level(options)};
  target.is_exact = numerics == options.extra.end() || numerics->second != "fast";
  return target;
}

inline Result<BenchModel> open_bench_model(const BenchOptions& options, int64_t rows_max, int64_t lanes_max,
                                           OpProfile* profile) {
  const SystemClock clock;
  BenchModel model;
  model.name = options.model.empty() ? std::string(DEEPINFER_TESTDATA) + "/model_a" : options.model;
  const int64_t begin_ns = clock.monotonic_ns();
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(model.name));
  ASSIGN_OR_RETURN(ModelWeights weights, ModelWeights::bind(std::make_shared<const Checkpoint>(std::move(checkpoint))));
  model.weights = std::make_shared<const ModelWeights>(std::move(weights));
  ASSIGN_OR_RETURN(TokenMap token_map, stand_in_classes(model.weights->config()));
  EngineOptions engine;
  engine.num_threads = options.num_threads;
  engine.target = bench_target(options);
  engine.rows_max = rows_max;
  if (const auto experts = options.extra.find("expert_memory"); experts != options.extra.end()) {
    ASSIGN_OR_RETURN(const ExpertMemory wanted, parse_expert_memory(experts->second));
    ASSIGN_OR_RETURN(engine.expert_bytes_max, check_model_fits(model.weights->config(), {.experts = wanted}));
  }
  engine.profile = profile;
  engine.lanes_max = lanes_max;
  engine.logits_rows_max = std::max<int64_t>(lanes_max, 64);
  engine.blocks_max = 16 * lanes_max;
  engine.context_max = 16 * kBlockTokens;
  ASSIGN_OR_RETURN(model.engine, Engine::open(model.weights, std::move(token_map), engine));
  model.open_s = static_cast<double>(clock.monotonic_ns() - begin_ns) * 1e-9;
  return model;
}

inline double step_weight_bytes(const ModelWeights& weights, int64_t num_rows, bool with_draft) {
  const ModelConfig& config = weights.config();
  WeightViews views;
  const double rows = static_cast<double>(num_rows);
  const double backbone = expected_experts(config.num_experts, config.experts_per_token, rows) / config.num_experts;
  const double draft_rows = rows * config.draft.block_size;
  const double draft = config.draft.num_experts > 0
                           ? expected_experts(config.draft.num_experts, config.draft.experts_per_token, draft_rows) /
                                 config.draft.num_experts
                           : 0;
  double bytes = 0;
  for (const WeightRow& row : declare_weights(config, views)) {
    const double size = static_cast<double>(row.size_bytes());
    switch (row.part) {
      case WeightPart::kEmbed: bytes += rows * static_cast<double>(config.hidden) * 2; break;
      case WeightPart::kEngramTables:
        bytes += row.is_scale ? 0 : rows * static_cast<double>(config.engram.row_columns());
        break;
      case WeightPart::kVision: break;
      case WeightPart::kExperts: bytes += size * backbone; break;
      case WeightPart::kHead: bytes += size * (with_draft ? 2 : 1); break;
      case WeightPart::kDraft: bytes += !with_draft ? 0 : row.expert >= 0 ? size * draft : size; break;
      default: bytes += size;
    }
  }
  return bytes;
}

inline BenchBatch::BenchBatch(Engine& engine, int64_t num_sequences, int64_t blocks_each) : engine_(engine) {
  uint32_t next = 0;
  for (int64_t s = 0; s < num_sequences; ++s) {
    std::vector<BlockId> blocks;
    for (int64_t b = 0; b < blocks_each; ++b) blocks.push_back(BlockId{next++});
    blocks_.emplace_back(std::move(blocks));
  }
}

inline Status BenchBatch::run(const Batch& batch) {
  TRY(engine_.launch(batch));
  TRY(engine_.sample(nullptr));
  TRY(engine_.collect(last_step_));
  device_busy_ns_ += last_step_.device_busy_ns;
  device_idle_ns_ += last_step_.device_idle_ns;
  return {};
}

inline Status BenchBatch::prefill(int64_t context, int64_t chunk) {
  Rng rng(1);
  const uint64_t vocab = static_cast<uint64_t>(engine_.config().vocab_size);
  for (size_t s = 0; s < blocks_.size(); ++s) {
    LaneStart start{.lane = static_cast<int32_t>(s)};
    start.params.temperature = 0;
    TRY(engine_.admit(std::move(start)));
    for (int64_t begin = 0; begin < context; begin += chunk) {
      Batch batch{.step = step_++};
      const int64_t end = std::min(context, begin + chunk);
      for (int64_t i = begin; i < end; ++i) batch.tokens.push_back(static_cast<TokenId>(rng.below(vocab)));
      batch.sequences.push_back({.lane = static_cast<int32_t>(s),
                                 .blocks = &blocks_[s],
                                 .position_begin = begin,
                                 .rows = {0, end - begin},
                                 .num_logits_rows = end == context});
      TRY(run(batch));
    }
  }
  position_ = context;
  device_busy_ns_ = device_idle_ns_ = 0;
  return {};
}

inline Status BenchBatch::decode(bool drafts, int64_t num_rows) {
  Batch batch{.step = step_++};
  const int64_t vocab = engine_.config().vocab_size;
  for (size_t s = 0; s < blocks_.size(); ++s) {
    const int64_t begin = batch.num_rows();
    for (int64_t i = 0; i < num_rows; ++i)
      batch.tokens.push_back(static_cast<TokenId>(((position_ + i) * 131 + begin * 17) % vocab));
    batch.sequences.push_back({.lane = static_cast<int32_t>(s),
                               .blocks = &blocks_[s],
                               .position_begin = position_,
                               .rows = {begin, begin + num_rows},
                               .num_logits_rows = num_rows,
                               .draft = drafts});
  }
  ++position_;
  return run(batch);
}

}  // namespace deepinfer
