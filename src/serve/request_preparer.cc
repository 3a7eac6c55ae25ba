// SPDX-License-Identifier: MIT
#include "serve/request_preparer.h"

#include <fmt/format.h>

#include <utility>

#include "base/entropy.h"
#include "chat/token_budget.h"
#include "serve/request_error_of.h"
#include "serve/sampling_of.h"

namespace deepinfer {
namespace {

constexpr size_t kGrammarBytesMax = size_t{512} << 20;
constexpr int64_t kCompileNsMax = 10'000'000'000;

}  // namespace

RequestPreparer::RequestPreparer(const LoadedModel& model, OutputVocabulary vocabulary,
                                 std::unique_ptr<PromptImages> images, int64_t context_max)
    : model_(model),
      vocabulary_(std::move(vocabulary)),
      context_max_(context_max),
      grammars_(std::make_shared<const TokenIndex>(model.tokenizer), AnswerTokens::of(vocabulary_.controls),
                kGrammarBytesMax),
      images_(std::move(images)) {}

Result<std::unique_ptr<RequestPreparer>> RequestPreparer::create(const LoadedModel& model, const Target& target,
                                                                 int num_threads, int64_t context_max) {
  ASSIGN_OR_RETURN(OutputVocabulary vocabulary, OutputVocabulary::create(model.tokenizer));
  ASSIGN_OR_RETURN(auto images, PromptImages::create(model, target, num_threads));
  return std::unique_ptr<RequestPreparer>(
      new RequestPreparer(model, std::move(vocabulary), std::move(images), context_max));
}

Result<std::vector<TokenId>> RequestPreparer::encode(const Conversation& conversation, PromptVersion version) const {
  ASSIGN_OR_RETURN(const EncodedConversation encoded,
                   encode_prompt(conversation, {.version = version}, vocabulary_.controls));
  return model_.tokenizer->encode(encoded.prompt);
}

// The grammar of what the request says about its answer. Compiled here, so off the loop's thread.
Refusal RequestPreparer::constrain(PreparedRequest& out, const Asker& asker) {
  const InferenceOptions& inference = out.chat.inference;
  auto spec = AnswerSpec::of(out.chat);
  const std::string path = inference.constraint ? inference.constraint->path : "";
  if (!spec.ok()) return refuse(spec.status().message(), path);
  if (spec->is_free()) return {};
  if (inference.ignore_eos || inference.min_tokens > 0) {
    const char* name = inference.ignore_eos ? "ignore_eos" : "min_tokens";
    return refuse(fmt::format("{} does not go with {}: the form says where the answer ends", name, path), name);
  }
  GrammarOptions options;
  options.flexible_space = !inference.without_space;
  const int64_t end_ns = clock_.monotonic_ns() + kCompileNsMax;
  options.keep_going = [&] { return clock_.monotonic_ns() < end_ns && (!asker.is_there || asker.is_there()); };
  auto grammar = grammars_.get(asker.tenant, *spec, options);
  if (!grammar.ok()) return refuse(fmt::format("Invalid {}: {}", path, grammar.status().message()), path);
  if ((*grammar)->is_empty()) return refuse(fmt::format("Invalid {}: no answer satisfies it", path), path);
  out.grammar = std::move(*grammar);
  return {};
}

Refusal RequestPreparer::settle(PreparedRequest& out, const Asker& asker) {
  const auto budget = resolve_max_tokens(out.chat, out.tokens.size(), static_cast<uint64_t>(context_max_));
  if (!budget.ok()) return request_error_of(budget.status());
  if (static_cast<int64_t>(out.tokens.size()) >= context_max_)
    return refuse(
        fmt::format("The prompt has {} tokens; with at least one token of answer it exceeds the context of {}.",
                    out.tokens.size(), context_max_));
  out.max_tokens = budget.value();
  out.sampling = sampling_of(out.chat.inference, config(), entropy_u64() >> 1);
  add_bad_words(out.chat.inference.bad_words, tokenizer(), out.sampling);
  if (const Status valid = validate(out.sampling, config().vocab_size); !valid.ok()) return refuse(valid.message());
  return constrain(out, asker);
}

Refusal RequestPreparer::prepare(ChatRequest chat, PreparedRequest& out, const Asker& asker) {
  out.chat = std::move(chat);
  const auto encoded = encode_prompt(out.chat.conversation, {.version = out.chat.version}, vocabulary_.controls);
  if (!encoded.ok()) return refuse(encoded.status().message());
  std::vector<TokenId> tokens = model_.tokenizer->encode(encoded.value().prompt);
  // Sizes before pixels: a request that cannot fit is refused before anything is decoded.
  int64_t num_extra_tokens = 0;
  REFUSE_IF(images_->count(encoded.value().images, context_max_, num_extra_tokens));
  const auto budget = resolve_max_tokens(out.chat, tokens.size() + static_cast<size_t>(num_extra_tokens),
                                         static_cast<uint64_t>(context_max_));
  if (!budget.ok()) return request_error_of(budget.status());
  PromptImages::Placed placed;
  REFUSE_IF(images_->place(encoded.value().images, std::move(tokens), placed));
  out.tokens = std::move(placed.tokens);
  out.images = std::move(placed.images);
  out.media = std::move(placed.media);
  return settle(out, asker);
}

Refusal RequestPreparer::prepare_tokens(ChatRequest chat, std::vector<TokenId> tokens, PreparedRequest& out,
                                        const Asker& asker) {
  out.chat = std::move(chat);
  out.tokens = std::move(tokens);
  return settle(out, asker);
}

Refusal RequestPreparer::count_tokens(const Conversation& conversation, PromptVersion version, uint64_t& num_tokens) {
  const auto encoded = encode_prompt(conversation, {.version = version}, vocabulary_.controls);
  if (!encoded.ok()) return refuse(encoded.status().message());
  int64_t num_extra_tokens = 0;
  REFUSE_IF(images_->count(encoded.value().images, context_max_, num_extra_tokens));
  num_tokens = model_.tokenizer->encode(encoded.value().prompt).size() + static_cast<uint64_t>(num_extra_tokens);
  return {};
}

}  // namespace deepinfer
