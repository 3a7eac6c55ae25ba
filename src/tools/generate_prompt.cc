// SPDX-License-Identifier: MIT
#include "tools/generate_prompt.h"

#include <fmt/format.h>

#include "base/file.h"
#include "chat/prompt_encoder.h"
#include "engine/image_embedding.h"
#include "protocol/codec.h"
#include "protocol/data_url.h"
#include "tools/command.h"
#include "tools/token_ids.h"
#include "vision/decode_image.h"

namespace deepinfer {
namespace {

Result<std::vector<TokenId>> read_ids(const std::string& path, int64_t vocab) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  auto tokens = parse_token_ids(text, vocab);
  if (!tokens.ok()) return tokens.status().prefixed(path);
  return tokens;
}

Result<std::vector<std::string>> read_image_files(const GeneratePrompt& prompt) {
  std::vector<std::string> encoded;
  for (const std::string& path : prompt.images) {
    ASSIGN_OR_RETURN(std::string bytes, read_file(path));
    encoded.push_back(std::move(bytes));
  }
  return encoded;
}

// One user message, its images first.
Result<ChatRequest> request_of_prompt(const GeneratePrompt& prompt) {
  ChatRequest request;
  Message message;
  ASSIGN_OR_RETURN(std::vector<std::string> files, read_image_files(prompt));
  for (std::string& bytes : files) {
    message.content.image_offsets.push_back(0);
    message.content.images.push_back({.kind = ImageSource::Kind::kBytes, .path = "--image", .value = std::move(bytes)});
  }
  message.content.text = prompt.prompt;
  request.conversation.messages.push_back(std::move(message));
  request.conversation.thinking = prompt.thinking != "off";
  if (request.conversation.thinking) {
    request.conversation.effort = prompt.thinking == "max" ? ReasoningEffort::kMax : ReasoningEffort::kHigh;
    request.parsing.thinking_stage = ThinkingStage::kReasoningStart;
  }
  return request;
}

Result<ChatRequest> request_of_body(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string body, read_file(path));
  DecodedRequest decoded;
  if (const Refusal refusal = find_codec("chat")->decode(body, DecodeOptions{}, decoded))
    return invalid_argument(
        fmt::format("{}: {}{}", path, refusal->param.empty() ? "" : refusal->param + ": ", refusal->message));
  return std::move(decoded.chat);
}

Result<std::string> image_bytes(const ImageSource& source) {
  switch (source.kind) {
    case ImageSource::Kind::kBytes: return source.value;
    case ImageSource::Kind::kDataUrl: {
      const auto url = parse_data_url(source.value);
      const auto bytes = url ? data_url_bytes(*url) : std::nullopt;
      if (!bytes) return invalid_argument(source.path + ": the data URL is damaged");
      return *bytes;
    }
    case ImageSource::Kind::kUrl: break;
  }
  return unimplemented(source.path + ": images are read from files and data URLs, not from the network");
}

Result<std::vector<RgbImage>> decode_images(const std::vector<std::string>& encoded) {
  const ImageLimits limits = image_limits_for(static_cast<int64_t>(encoded.size()));
  std::vector<RgbImage> images;
  for (const std::string& bytes : encoded) {
    auto image = decode_image({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, limits);
    if (!image.ok()) return image.status().prefixed(fmt::format("image {}", images.size()));
    images.push_back(std::move(image).value());
  }
  return images;
}

Status place(const std::vector<std::string>& encoded, const LoadedModel& model, const Target& target, int num_threads,
             PreparedPrompt& prepared) {
  if (encoded.empty()) return {};
  ASSIGN_OR_RETURN(const std::vector<RgbImage> images, decode_images(encoded));
  ASSIGN_OR_RETURN(const ImageEmbedder embedder, ImageEmbedder::create(*model.weights, target));
  ThreadPool pool(num_threads);
  Scratch scratch;
  const auto spans = embedder.embed(images, {&pool, &scratch});
  const ModelConfig& config = model.weights->config();
  ASSIGN_OR_RETURN(PlacedImages placed, place_images(prepared.tokens, config.image_token_id, spans, config.hidden));
  prepared.tokens = std::move(placed.tokens);
  prepared.images = std::move(placed.images);
  return {};
}

Result<std::vector<std::string>> encode_conversation(const LoadedModel& model, PreparedPrompt& prepared) {
  ASSIGN_OR_RETURN(const ControlTokens controls, ControlTokens::find(*model.tokenizer, prepared.request.version));
  ASSIGN_OR_RETURN(const EncodedConversation encoded,
                   encode_prompt(prepared.request.conversation, {.version = prepared.request.version}, controls));
  prepared.tokens = model.tokenizer->encode(encoded.prompt);
  ASSIGN_OR_RETURN(OutputVocabulary vocabulary, OutputVocabulary::create(model.tokenizer));
  prepared.vocabulary = std::make_unique<OutputVocabulary>(std::move(vocabulary));
  std::vector<std::string> images;
  for (const ImageSource* source : encoded.images) {
    ASSIGN_OR_RETURN(std::string bytes, image_bytes(*source));
    images.push_back(std::move(bytes));
  }
  return images;
}

}  // namespace

void declare_prompt_options(OptionSet& options, GeneratePrompt& prompt) {
  options.add("--prompt", prompt.prompt, "one user message, put through the prompt encoder");
  options.add("--chat", prompt.chat, "file with a Chat Completions request body");
  options.add("--ids", prompt.ids, "file with a JSON array of token ids, used as they are");
  options.add("--image", prompt.images, "PNG, JPEG, WebP or GIF file; may repeat");
  options.flag("--raw", prompt.raw, "take --prompt as it is: control tokens are read, nothing is added");
  options.choice("--thinking", prompt.thinking, {"off", "on", "max"},
                 "whether the answer begins with reasoning (default off)");
}

Status check_prompt_options(const GeneratePrompt& prompt, bool is_batch) {
  const int given = !prompt.prompt.empty() + !prompt.chat.empty() + !prompt.ids.empty() + is_batch;
  if (given != 1) return invalid_argument("expected exactly one of --prompt, --chat, --ids and --chat-batch");
  if ((is_batch || !prompt.chat.empty()) && !prompt.images.empty())
    return invalid_argument("--image: images of a request stand in its body");
  if (prompt.raw && prompt.prompt.empty()) return invalid_argument("--raw: goes with --prompt only");
  return {};
}

Result<PreparedPrompt> prepare_prompt(const GeneratePrompt& prompt, const LoadedModel& model, const Target& target,
                                      int num_threads) {
  PreparedPrompt prepared;
  std::vector<std::string> images;
  if (!prompt.ids.empty()) {
    ASSIGN_OR_RETURN(prepared.tokens, read_ids(prompt.ids, model.weights->config().vocab_size));
    ASSIGN_OR_RETURN(images, read_image_files(prompt));
  } else if (prompt.raw) {
    prepared.tokens = model.tokenizer->encode_with_added(prompt.prompt);
    ASSIGN_OR_RETURN(images, read_image_files(prompt));
  } else {
    prepared.is_request = !prompt.chat.empty();
    ASSIGN_OR_RETURN(prepared.request, prepared.is_request ? request_of_body(prompt.chat) : request_of_prompt(prompt));
    ASSIGN_OR_RETURN(images, encode_conversation(model, prepared));
  }
  TRY(place(images, model, target, num_threads, prepared));
  prepared.num_prompt_tokens = prepared.tokens.size();
  return prepared;
}

}  // namespace deepinfer
