// SPDX-License-Identifier: MIT
// One API protocol as three functions: decode (bytes -> ChatRequest), encode (ChatEvents -> bytes), error (-> bytes).
// `codecs()` lists them; the server and the tools look a codec up by path or by name. Any thread; no state.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "chat/chat_request.h"
#include "protocol/decode_options.h"
#include "protocol/request_error.h"

namespace deepinfer {

class Shape;            // protocol/shape.h
class ResponseEncoder;  // protocol/response_encoder.h
struct ResponseIdentity;

enum class Protocol { kChatCompletions, kResponses, kMessages };

// What the answer's form depends on besides the events: kept from the request until its last event is out.
struct ResponseContext {
  bool stream = false;
  bool thinking = true;
  bool include_usage = false;           // Chat: `usage` key on every chunk
  bool starts_after_reasoning = false;  // Chat: the first chunk opens the content (a prefix with content)
  bool logprobs = false;
  bool recipe_compatible = false;  // byte shapes of the original where ours say more
  // Responses. `echo` holds the settings a response object repeats, as sent: instructions, max_output_tokens,
  // reasoning, temperature, text, tool_choice, tools, top_logprobs, top_p, user; ours also metadata,
  // parallel_tool_calls, previous_response_id, prompt_cache_key, safety_identifier.
  Json echo;
  bool stores = false;  // the answer is to be kept for GET and previous_response_id
  std::map<std::string, std::pair<std::string, std::string>> namespaced_tools;  // flattened name -> namespace, own name
  std::set<std::string> custom_tools;  // names declared as custom: calls are reported as custom_tool_call
  bool client_tool_search = false;     // calls of `tool_search` are reported as tool_search_call
};

struct DecodedRequest {
  ChatRequest chat;
  ResponseContext response;
};

struct Codec {
  Protocol protocol;
  const char* name;  // "chat", "responses", "messages"
  const char* path;  // "/v1/chat/completions"
  // Reads a body. On success `out` is whole; on refusal it is unspecified. The bytes need not outlive the call.
  Refusal (*decode)(std::string_view body, const DecodeOptions& options, DecodedRequest& out);
  // A fresh encoder for one response.
  std::unique_ptr<ResponseEncoder> (*encode)(const ResponseContext& context, const ResponseIdentity& identity);
  // The body of a refusal or failure; the HTTP status stands in the error.
  std::string (*error)(const RequestError& error, bool recipe_compatible);
  const Shape& (*shape)(bool recipe_compatible);  // of a body
};

std::span<const Codec> codecs();
const Codec* find_codec(std::string_view name);          // nullptr when unknown
const Codec* find_codec_by_path(std::string_view path);  // nullptr when unknown

}  // namespace deepinfer
