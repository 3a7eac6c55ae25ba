// SPDX-License-Identifier: MIT
// From a decoded request to what the step loop takes: prompt template, tokens, images (prompt_images.h), context check,
// sampling. Any thread. Everything from outside was bounded by the decoder, pixels are bounded by their headers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "chat/output_vocabulary.h"
#include "chat/prompt_encoder.h"
#include "grammar/grammar_cache.h"
#include "protocol/request_error.h"
#include "serve/loaded_model.h"
#include "serve/prepared_request.h"
#include "serve/prompt_images.h"

namespace deepinfer {

class RequestPreparer {
 public:
  // `model` outlives the object. `context_max`: tokens of prompt and answer.
  static Result<std::unique_ptr<RequestPreparer>> create(const LoadedModel& model, const Target& target,
                                                         int num_threads, int64_t context_max);

  // Whose request it is, and whether it still matters: asked while its grammar is compiled.
  struct Asker {
    std::string tenant;
    std::function<bool()> is_there;  // any thread; none: always
  };
  // A conversation.
  Refusal prepare(ChatRequest chat, PreparedRequest& out, const Asker& asker = {});
  // A prompt that is tokens already; `chat` gives the options.
  Refusal prepare_tokens(ChatRequest chat, std::vector<TokenId> tokens, PreparedRequest& out, const Asker& asker = {});
  // Tokens of the prompt with its images, which are read but not encoded.
  Refusal count_tokens(const Conversation& conversation, PromptVersion version, uint64_t& num_tokens);
  // Ids of the prompt; an image is one placeholder.
  Result<std::vector<TokenId>> encode(const Conversation& conversation, PromptVersion version) const;

  const OutputVocabulary& vocabulary() const { return vocabulary_; }
  const Tokenizer& tokenizer() const { return *model_.tokenizer; }
  const ModelConfig& config() const { return model_.weights->config(); }
  int64_t context_max() const { return context_max_; }
  GrammarCache::Stats grammar_stats() const { return grammars_.stats(); }
  bool takes_images() const { return images_->takes_images(); }

 private:
  RequestPreparer(const LoadedModel& model, OutputVocabulary vocabulary, std::unique_ptr<PromptImages> images,
                  int64_t context_max);
  Refusal settle(PreparedRequest& out, const Asker& asker);
  Refusal constrain(PreparedRequest& out, const Asker& asker);

  const LoadedModel& model_;
  OutputVocabulary vocabulary_;
  int64_t context_max_;
  GrammarCache grammars_;
  const SystemClock clock_;  // limits a compile
  std::unique_ptr<PromptImages> images_;
};

}  // namespace deepinfer
