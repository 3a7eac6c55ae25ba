// SPDX-License-Identifier: MIT
#include "serve/loaded_model.h"

#include "base/sha256.h"
#include "engine/engine.h"
#include "serve/checkpoint_revision.h"
#include "serve/embedded_model.h"
#include "serve/token_map_of.h"

namespace deepinfer {

Result<LoadedModel> load_model(const std::string& name, const ExpertMemory& experts) {
  LoadedModel model;
  ASSIGN_OR_RETURN(Checkpoint checkpoint, open_checkpoint(name));
  ASSIGN_OR_RETURN(model.expert_bytes_max, check_model_fits(checkpoint.config(), {.experts = experts}));
  ASSIGN_OR_RETURN(ModelWeights weights, ModelWeights::bind(std::make_shared<const Checkpoint>(std::move(checkpoint))));
  model.weights = std::make_shared<const ModelWeights>(std::move(weights));
  ASSIGN_OR_RETURN(model.tokenizer, open_named_tokenizer(name));
  if (!model.weights->config().engram.empty()) model.token_map = token_map_of(*model.tokenizer);
  model.revision = checkpoint_revision(name);
  if (model.revision.empty()) model.revision = name;
  return model;
}

std::string state_revision(const Engine& engine, const std::string& revision) {
  const Target& target = engine.options().target;
  const bool is_exact = target.is_exact || target.backend == Backend::kCpu || target.backend == Backend::kRef;
  const std::string kernels = is_exact ? "those of the reference" : engine.describe_kernels();
  const std::string text = revision + '\n' + engine.state_layout() + '\n' + kernels;
  return to_hex(sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
}

}  // namespace deepinfer
