// SPDX-License-Identifier: MIT
// Bodies of /v1/completions: a refusal has a message of valid UTF-8 and a 4xx status; what is accepted holds ids of the
// vocabulary alone, and its answer is JSON whatever the prompt was.
#include "base/check.h"
#include "base/fuzz.h"
#include "base/json.h"
#include "base/utf8.h"
#include "protocol/text_completions.h"

namespace deepinfer {

int fuzz_text_completion(const uint8_t* data, size_t size) {
  constexpr int64_t kVocabSize = 1000;
  TextCompletionRequest request;
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  if (const Refusal refusal = decode_text_completion(body, {}, kVocabSize, request)) {
    CHECK(refusal->http_status >= 400 && refusal->http_status < 500);
    CHECK(!refusal->message.empty() && is_valid_utf8(refusal->message));
    return 0;
  }
  if (request.tokens)
    for (const TokenId id : *request.tokens) CHECK(id >= TokenId{0} && static_cast<int64_t>(id) < kVocabSize);
  const auto encoder = make_text_completions_encoder(request.response, {.id = "c", .model = request.chat.model},
                                                     request.echo ? request.prompt : "");
  ChatEvents events;
  events.list.push_back({.kind = ChatEventKind::kStart});
  events.add_text(ChatEventKind::kText, 0, "x");
  events.list.push_back({.kind = ChatEventKind::kFinish});
  WireEvents wire;
  encoder->encode(0, events, wire);
  for (const WireEvent& event : wire.list) CHECK(parse_json(wire.data_of(event)).ok());
  std::string whole;
  encoder->append_final(whole);
  CHECK(parse_json(whole).ok());
  return 0;
}

}  // namespace deepinfer
