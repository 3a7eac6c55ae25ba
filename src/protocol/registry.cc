// SPDX-License-Identifier: MIT
#include "protocol/chat_completions_decode.h"
#include "protocol/codec.h"
#include "protocol/error_body.h"
#include "protocol/messages_decode.h"
#include "protocol/response_encoder.h"
#include "protocol/responses_decode.h"

namespace deepinfer {

namespace {

constexpr Codec kCodecs[] = {
    {Protocol::kChatCompletions, "chat", "/v1/chat/completions", decode_chat_completions, make_chat_completions_encoder,
     openai_error_body, chat_completions_shape},
    {Protocol::kResponses, "responses", "/v1/responses", decode_responses, make_responses_encoder, openai_error_body,
     responses_shape},
    {Protocol::kMessages, "messages", "/v1/messages", decode_messages, make_messages_encoder, anthropic_error_body,
     messages_shape},
};

}  // namespace

std::span<const Codec> codecs() { return kCodecs; }

const Codec* find_codec(std::string_view name) {
  for (const Codec& codec : kCodecs)
    if (codec.name == name) return &codec;
  return nullptr;
}

const Codec* find_codec_by_path(std::string_view path) {
  for (const Codec& codec : kCodecs)
    if (codec.path == path) return &codec;
  return nullptr;
}

}  // namespace deepinfer
