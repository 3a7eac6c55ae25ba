// SPDX-License-Identifier: MIT
#include "tools/generate_prompt.h"

#include <fmt/format.h>

#include "base/file.h"
#include "chat/prompt_encoder.h"
#include "protocol/codec.h"
#include "serve/prompt_images.h"
#include "tools/command.h"
#include "tools/token_ids.h"

namespace deepinfer {
namespace {

Result<std::vector<TokenId>> read_ids(const std::string& path, int64_t vocab) {
  ASSIGN_OR_RETURN(const std::string text, read_file(path));
  auto tokens = parse_token_ids(text, vocab);
  if (!tokens.ok()) return tokens.status().prefixed(path);
  return tokens;
}

Result<std::vector<ImageSource>> read_image_files(const GeneratePrompt& prompt) {
  std::vector<ImageSource> images;
  for (const std::string& path : prompt.images) {
    ASSIGN_OR_RETURN(std::string bytes, read_file(path));
    images.push_back({.kind = ImageSource::Kind::kBytes, .path = path, .value = std::move(bytes)});
  }
  return images;
}

// One user message, its images first.
Result<ChatRequest> request_of_prompt(const GeneratePrompt& prompt) {
  ChatRequest request;
  Message message;
  ASSIGN_OR_RETURN(message.content.images, read_image_files(prompt));
  message.content.image_offsets.assign(message.content.images.size(), 0);
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

Status place(const std::vector<const ImageSource*>& images, const LoadedModel& model, const Target& target,
             int num_threads, PreparedPrompt& prepared) {
  if (images.empty()) return {};
  ASSIGN_OR_RETURN(const auto reader, PromptImages::create(model, target, num_threads));
  PromptImages::Placed placed;
  if (const Refusal refusal = reader->place(images, std::move(prepared.tokens), placed))
    return invalid_argument(refusal->param.empty() ? refusal->message : refusal->param + ": " + refusal->message);
  prepared.tokens = std::move(placed.tokens);
  prepared.images = std::move(placed.images);
  return {};
}

// The images are the request's.
Result<std::vector<const ImageSource*>> encode_conversation(const LoadedModel& model, PreparedPrompt& prepared) {
  ASSIGN_OR_RETURN(OutputVocabulary vocabulary, OutputVocabulary::create(model.tokenizer));
  ASSIGN_OR_RETURN(
      EncodedConversation encoded,
      encode_prompt(prepared.request.conversation, {.version = prepared.request.version}, vocabulary.controls));
  prepared.tokens = model.tokenizer->encode(encoded.prompt);
  prepared.vocabulary = std::make_unique<OutputVocabulary>(std::move(vocabulary));
  return std::move(encoded.images);
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
  std::vector<const ImageSource*> images;
  std::vector<ImageSource> files;
  if (!prompt.ids.empty() || prompt.raw) {
    if (prompt.raw) {
      prepared.tokens = model.tokenizer->encode_with_added(prompt.prompt);
    } else {
      ASSIGN_OR_RETURN(prepared.tokens, read_ids(prompt.ids, model.weights->config().vocab_size));
    }
    ASSIGN_OR_RETURN(files, read_image_files(prompt));
    for (const ImageSource& file : files) images.push_back(&file);
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
