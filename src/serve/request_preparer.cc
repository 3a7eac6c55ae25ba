// SPDX-License-Identifier: MIT
#include "serve/request_preparer.h"

#include <fmt/format.h>

#include <utility>

#include "base/entropy.h"
#include "chat/token_budget.h"
#include "protocol/data_url.h"
#include "serve/request_error_of.h"
#include "serve/sampling_of.h"
#include "vision/decode_image.h"

namespace deepinfer {
namespace {

constexpr size_t kGrammarBytesMax = size_t{512} << 20;
constexpr int64_t kCompileNsMax = 10'000'000'000;

std::span<const uint8_t> bytes_of(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Bytes of the encoded image. Remote addresses are not fetched: no request makes the server open a connection.
Refusal image_bytes(const ImageSource& source, std::string& out) {
  if (source.kind == ImageSource::Kind::kBytes) {
    out = source.value;
    return {};
  }
  if (source.kind == ImageSource::Kind::kUrl)
    return refuse("Remote image URLs are not enabled on this server; send the image as a data: URL.", source.path);
  const auto url = parse_data_url(source.value);
  auto bytes = url ? data_url_bytes(*url) : std::nullopt;
  if (!bytes) return refuse("The image's data: URL is damaged.", source.path);
  out = std::move(*bytes);
  return {};
}

}  // namespace

RequestPreparer::RequestPreparer(const LoadedModel& model, OutputVocabulary vocabulary, int num_threads,
                                 int64_t context_max)
    : model_(model),
      vocabulary_(std::move(vocabulary)),
      context_max_(context_max),
      grammars_(std::make_shared<const TokenIndex>(model.tokenizer), AnswerTokens::of(vocabulary_.controls),
                kGrammarBytesMax),
      pool_(num_threads) {}

Result<std::unique_ptr<RequestPreparer>> RequestPreparer::create(const LoadedModel& model, const Target& target,
                                                                 int num_threads, int64_t context_max) {
  ASSIGN_OR_RETURN(OutputVocabulary vocabulary, OutputVocabulary::create(model.tokenizer));
  const bool sees = model.weights->config().vision.has_value();
  std::unique_ptr<RequestPreparer> preparer(
      new RequestPreparer(model, std::move(vocabulary), sees ? num_threads : 1, context_max));
  if (sees) {
    ASSIGN_OR_RETURN(ImageEmbedder embedder, ImageEmbedder::create(*model.weights, target));
    preparer->embedder_.emplace(std::move(embedder));
  }
  return preparer;
}

Result<std::vector<TokenId>> RequestPreparer::encode(const Conversation& conversation, PromptVersion version) const {
  ASSIGN_OR_RETURN(const EncodedConversation encoded,
                   encode_prompt(conversation, {.version = version}, vocabulary_.controls));
  return model_.tokenizer->encode(encoded.prompt);
}

Refusal RequestPreparer::read_images(const std::vector<const ImageSource*>& sources, bool decodes, Images& out) const {
  if (sources.empty()) return {};
  if (!embedder_) return refuse("This model does not take images.", sources[0]->path);
  const ImageLimits limits = image_limits_for(static_cast<int64_t>(sources.size()));
  for (const ImageSource* source : sources) {
    REFUSE_IF(image_bytes(*source, out.encoded.emplace_back()));
    auto header = read_image_header(bytes_of(out.encoded.back()), limits);
    if (!header.ok()) return refuse(header.status().message(), source->path);
    out.num_extra_tokens += plan_image(header->width, header->height, embedder_->plan_config()).num_tokens - 1;
    if (out.num_extra_tokens > context_max_) return refuse("The images alone exceed the context.", source->path);
    if (!decodes) continue;
    auto image = decode_image(bytes_of(out.encoded.back()), limits);
    if (!image.ok()) return refuse(image.status().message(), source->path);
    out.decoded.push_back(std::move(image).value());
  }
  return {};
}

Refusal RequestPreparer::place(const Images& images, PreparedRequest& out) {
  if (images.decoded.empty()) return {};
  std::vector<ImageSpanRows> spans;
  {
    const std::lock_guard lock(embedding_);
    spans = embedder_->embed(images.decoded, {&pool_, &scratch_});
  }
  auto placed = place_images(out.tokens, config().image_token_id, spans, config().hidden);
  if (!placed.ok()) return request_error_of(placed.status());
  out.tokens = std::move(placed->tokens);
  out.images = std::move(placed->images);
  for (size_t i = 0; i < out.images.size(); ++i)
    out.media.push_back(
        {out.images[i].positions.begin, out.images[i].positions.end, sha256(bytes_of(images.encoded[i]))});
  return {};
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
  out.tokens = model_.tokenizer->encode(encoded.value().prompt);
  Images images;
  // Sizes before pixels: a request that cannot fit is refused before anything is decoded.
  REFUSE_IF(read_images(encoded.value().images, false, images));
  const auto budget = resolve_max_tokens(out.chat, out.tokens.size() + static_cast<size_t>(images.num_extra_tokens),
                                         static_cast<uint64_t>(context_max_));
  if (!budget.ok()) return request_error_of(budget.status());
  images = {};
  REFUSE_IF(read_images(encoded.value().images, true, images));
  REFUSE_IF(place(images, out));
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
  Images images;
  REFUSE_IF(read_images(encoded.value().images, false, images));
  num_tokens = model_.tokenizer->encode(encoded.value().prompt).size() + static_cast<uint64_t>(images.num_extra_tokens);
  return {};
}

}  // namespace deepinfer
