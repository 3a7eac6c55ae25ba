// SPDX-License-Identifier: MIT
// A checkpoint ready to run: weights bound, tokenizer and its Engram token map made. Immutable; any thread.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "engram/token_map.h"
#include "model/memory_plan.h"
#include "model/weights.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

class Engine;

struct LoadedModel {
  std::string revision;  // of the checkpoint (checkpoint_revision.h), or the embedded model's name
  std::shared_ptr<const ModelWeights> weights;
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenMap token_map;
  int64_t expert_bytes_max = 0;  // EngineOptions::expert_bytes_max: 0 = all routed experts are in memory
};

// Errors: of the checkpoint, the tokenizer, or the memory plan; each says what to do.
// `name`: a checkpoint folder, or "mini".
Result<LoadedModel> load_model(const std::string& name, const ExpertMemory& experts = {});

// Names all that decides what blocks and states of this engine mean: checkpoint and program (`revision`), layout, and
// kernels that sum in an order of their own. The others all give the reference's bits: no CPU level is in the name, so
// a restart on a machine that measures another one as the fastest finds what it stored. Bytes of another name are never
// taken for its own.
std::string state_revision(const Engine& engine, const std::string& revision);

}  // namespace deepinfer
