// SPDX-License-Identifier: MIT
#include "serve/loaded_model.h"

#include "model/memory_plan.h"
#include "serve/token_map_of.h"

namespace deepinfer {

Result<LoadedModel> load_model(const std::string& folder) {
  if (folder == "mini")
    return unavailable("this build has no embedded mini model: name a checkpoint folder with --model");
  LoadedModel model;
  ASSIGN_OR_RETURN(Checkpoint checkpoint, Checkpoint::open(folder));
  TRY(check_model_fits(checkpoint.config(), {}));
  ASSIGN_OR_RETURN(ModelWeights weights, ModelWeights::bind(std::make_shared<const Checkpoint>(std::move(checkpoint))));
  model.weights = std::make_shared<const ModelWeights>(std::move(weights));
  ASSIGN_OR_RETURN(model.tokenizer, Tokenizer::load(folder));
  if (!model.weights->config().engram.empty()) model.token_map = token_map_of(*model.tokenizer);
  return model;
}

}  // namespace deepinfer
