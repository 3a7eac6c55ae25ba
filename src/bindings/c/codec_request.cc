// SPDX-License-Identifier: MIT
// deepinfer_codec.h: codecs and requests.
#include <fmt/format.h>

#include "bindings/c/c_boundary.h"
#include "bindings/c/codec_handles.h"
#include "bindings/c/codec_settings.h"
#include "chat/token_budget.h"

using namespace deepinfer;

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
    *out = new deepinfer_codec{std::make_shared<const CodecState>(
        CodecState{std::move(vocabulary), std::move(encoder), std::move(read.options), read.context_limit})};
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
    if (found == nullptr) {
      return invalid_argument(fmt::format("protocol: expected chat, responses or messages, got \"{}\"", protocol));
    }
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
