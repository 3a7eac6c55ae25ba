// SPDX-License-Identifier: MIT
// deepinfer_codec.h: codecs and requests.
#include <fmt/format.h>

#include "bindings/c/c_boundary.h"
#include "bindings/c/codec_handles.h"
#include "bindings/c/codec_settings.h"
#include "bindings/c/conversation_json.h"
#include "chat/token_budget.h"

using namespace deepinfer;

namespace {

Status unknown_protocol(std::string_view name) {
  return invalid_argument(fmt::format("protocol: expected chat, responses or messages, got \"{}\"", name));
}

// The limits are those of a request's body.
Result<Json> parse_conversation(const RequestLimits& limits, const char* data, size_t size) {
  ASSIGN_OR_RETURN(const std::string_view text, text_argument("conversation", data, size, limits.body_bytes_max));
  JsonLimits form;
  form.bytes_max = limits.body_bytes_max;
  form.depth_max = limits.depth_max;
  form.wide_integers = true;
  Result<Json> value = parse_json(text, form);
  if (!value.ok()) return value.status().prefixed("conversation");
  return value;
}

Status check_counts(const RequestLimits& limits, const Conversation& conversation) {
  size_t num_images = 0, num_tools = conversation.tools.size();
  for (const Message& message : conversation.messages) {
    num_images += message.content.images.size();
    if (message.tools) num_tools += message.tools->size();
  }
  const auto check = [](std::string_view what, size_t count, size_t count_max) -> Status {
    if (count <= count_max) return {};
    return resource_exhausted(fmt::format("conversation: {} {}, at most {} are accepted", count, what, count_max));
  };
  TRY(check("messages", conversation.messages.size(), limits.messages_max));
  TRY(check("tools", num_tools, limits.tools_max));
  return check("images", num_images, limits.images_max);
}

}  // namespace

deepinfer_code deepinfer_codec_new(const deepinfer_tokenizer* tokenizer, const char* settings, size_t size,
                                   deepinfer_codec** out, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = nullptr;
    if (tokenizer == nullptr) return invalid_argument("tokenizer is NULL");
    ASSIGN_OR_RETURN(CodecSettings read, read_codec_settings(settings, size));
    ASSIGN_OR_RETURN(OutputVocabulary vocabulary, OutputVocabulary::create(tokenizer->tokenizer));
    ASSIGN_OR_RETURN(RecordEncoder encoder,
                     RecordEncoder::create(tokenizer->tokenizer, read.options.recipe_compatible));
    *out = new deepinfer_codec{std::make_shared<const CodecState>(CodecState{
        std::move(vocabulary), tokenizer->tables, std::move(encoder), std::move(read.options), read.context_limit})};
    return {};
  });
}

void deepinfer_codec_free(deepinfer_codec* codec) { delete codec; }

deepinfer_code deepinfer_request_decode(const deepinfer_codec* codec, const char* protocol, const char* body,
                                        size_t size, deepinfer_request** out, deepinfer_error* error) {
  const deepinfer_code code = guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = nullptr;
    if (codec == nullptr || protocol == nullptr) return invalid_argument("codec or protocol is NULL");
    const Codec* found = find_codec(protocol);
    if (found == nullptr) return unknown_protocol(protocol);
    // The body's own limit is lower and gives a refusal in the protocol's form.
    ASSIGN_OR_RETURN(const std::string_view bytes, text_argument("body", body, size));
    const CodecState& state = *codec->state;
    ASSIGN_OR_RETURN(EncodedRequest encoded, state.encoder.encode_body(*found, bytes, state.options));
    std::string error_body;
    if (encoded.refusal) error_body = found->error(*encoded.refusal, state.options.recipe_compatible);
    *out = new deepinfer_request{std::make_shared<const RequestState>(
        RequestState{codec->state, found, std::move(encoded), std::move(error_body)})};
    return {};
  });
  if (code != DEEPINFER_OK || !(*out)->state->encoded.refusal) return code;
  return report(error, DEEPINFER_REFUSED, (*out)->state->encoded.refusal->message);
}

void deepinfer_request_free(deepinfer_request* request) { delete request; }

int32_t deepinfer_request_http_status(const deepinfer_request* request) {
  if (request == nullptr) return 0;
  const Refusal& refusal = request->state->encoded.refusal;
  return refusal ? refusal->http_status : 200;
}

deepinfer_view deepinfer_request_error_body(const deepinfer_request* request) {
  return request == nullptr ? view_of({}) : view_of(request->state->error_body);
}

deepinfer_id_view deepinfer_request_ids(const deepinfer_request* request) {
  if (request == nullptr) return {nullptr, 0};
  return {request->state->encoded.ids.data(), request->state->encoded.ids.size()};
}

deepinfer_view deepinfer_request_prompt(const deepinfer_request* request) {
  return request == nullptr ? view_of({}) : view_of(request->state->encoded.prompt.text);
}

deepinfer_view deepinfer_request_model(const deepinfer_request* request) {
  return request == nullptr ? view_of({}) : view_of(request->state->encoded.decoded.chat.model);
}

deepinfer_code deepinfer_request_json(const deepinfer_request* request, deepinfer_text* out, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = {};
    if (request == nullptr) return invalid_argument("request is NULL");
    const CodecState& codec = *request->state->codec;
    return copy_to(to_json(codec.encoder.record_of(request->state->encoded, codec.context_limit)), *out);
  });
}

deepinfer_code deepinfer_request_conversation(const deepinfer_request* request, deepinfer_text* out,
                                              deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = {};
    if (request == nullptr) return invalid_argument("request is NULL");
    if (request->state->encoded.refusal) return invalid_argument("the request is refused");
    return copy_to(to_json(json_of(request->state->encoded.decoded.chat.conversation)), *out);
  });
}

deepinfer_code deepinfer_request_from_conversation(const deepinfer_codec* codec, const char* protocol,
                                                   const char* version, const char* conversation, size_t size,
                                                   deepinfer_request** out, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = nullptr;
    if (codec == nullptr || protocol == nullptr || version == nullptr)
      return invalid_argument("codec, protocol or version is NULL");
    const Codec* found = find_codec(protocol);
    if (found == nullptr) return unknown_protocol(protocol);
    const std::string_view name = version;
    if (name != "v4" && name != "v41")
      return invalid_argument(fmt::format("version: expected v4 or v41, got {}", name));
    ASSIGN_OR_RETURN(const Json value, parse_conversation(codec->state->options.limits, conversation, size));
    DecodedRequest decoded;
    decoded.chat.version = name == "v4" ? PromptVersion::kV4 : PromptVersion::kV41;
    ASSIGN_OR_RETURN(decoded.chat.conversation, read_conversation(value));
    TRY(check_counts(codec->state->options.limits, decoded.chat.conversation));
    decoded.response.thinking = decoded.chat.conversation.thinking;
    decoded.response.recipe_compatible = codec->state->options.recipe_compatible;
    ASSIGN_OR_RETURN(EncodedRequest encoded, codec->state->encoder.encode_decoded(std::move(decoded)));
    *out = new deepinfer_request{
        std::make_shared<const RequestState>(RequestState{codec->state, found, std::move(encoded), {}})};
    return {};
  });
}

deepinfer_code deepinfer_request_max_tokens(const deepinfer_request* request, uint64_t prompt_tokens,
                                            uint64_t context_limit, uint32_t* out, deepinfer_error* error) {
  return guarded(error, [&]() -> Status {
    if (out == nullptr) return invalid_argument("out is NULL");
    *out = 0;
    if (request == nullptr) return invalid_argument("request is NULL");
    if (request->state->encoded.refusal) return invalid_argument("the request is refused");
    ASSIGN_OR_RETURN(*out, resolve_max_tokens(request->state->encoded.decoded.chat, prompt_tokens, context_limit));
    return {};
  });
}
