// SPDX-License-Identifier: MIT
#include "serve/loaded_model.h"

#include "model/memory_plan.h"
#include "serve/embedded_model.h"
#include "serve/token_map_of.h"

namespace deepinfer {

Result<LoadedModel> load_model(const std::string& name) {
  LoadedModel model;
  ASSIGN_OR_RETURN(Checkpoint checkpoint, open_checkpoint(name));
  TRY(check_model_fits(checkpoint.config(), {}));
  ASSIGN_OR_RETURN(ModelWeights weights, ModelWeights::bind(std::make_shared<const Checkpoint>(std::move(checkpoint))));
  model.weights = std::make_shared<const ModelWeights>(std::move(weights));
  ASSIGN_OR_RETURN(model.tokenizer, open_named_tokenizer(name));
  if (!model.weights->config().engram.empty()) model.token_map = token_map_of(*model.tokenizer);
  return model;
}

}  // namespace deepinfer
