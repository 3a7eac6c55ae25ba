// SPDX-License-Identifier: MIT
// What a client asked for, free of any wire format: the conversation, how to sample, how to read the output. `protocol`
// makes it from bytes, the prompt encoder and the server read it. Plain values; no thread of their own.
// Source of the rules: chat.md 2.1 and 3.1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json.h"

namespace deepinfer {

// Which prompt template (and markup spelling) the model was trained with.
enum class PromptVersion { kV4, kV41 };

enum class Role { kSystem, kUser, kAssistant, kTool, kLatestReminder };
enum class ToolChoice { kAuto, kNone, kRequired };
enum class ReasoningEffort { kLow, kHigh, kXhigh, kMax };
// Quick-instruction tasks of the V4 template: a control token after the message asks for a short, special answer.
enum class QuickTask { kNone, kAction, kQuery, kAuthority, kDomain, kTitle, kReadUrl };

struct ImageSource {
  enum class Kind { kDataUrl, kUrl, kBytes };
  enum class Detail { kLow, kHigh, kOriginal, kAuto };
  Kind kind = Kind::kUrl;
  Detail detail = Detail::kHigh;
  std::string path;   // where the request holds it, as error messages say it: ".messages[0]"
  std::string value;  // the data URL, the URL, or the encoded bytes
};

struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON text as the client or the model wrote it; not validated
};

struct ToolDefinition {
  std::string name;
  std::optional<std::string> description;
  Json parameters = Json::Object{};  // JSON Schema; already in closed form when strict
  std::optional<bool> strict;
  bool defer_loading = false;  // declared, but not in the prompt's tools text until a message introduces it
};

// Text with places where an image stands. An image is no text: the placeholder's spelling inside `text` is plain text.
struct MessageContent {
  std::string text;
  std::vector<size_t> image_offsets;  // ascending byte offsets into text; the i-th belongs to images[i]
  std::vector<ImageSource> images;
};

struct Message {
  Role role = Role::kUser;
  MessageContent content;
  std::optional<std::string> reasoning;              // assistant: absent and empty differ
  std::optional<std::vector<ToolCall>> tool_calls;   // assistant: absent and empty differ (V4)
  std::optional<std::string> tool_call_id;           // tool
  bool prefix = false;                               // assistant, last message: the answer continues this text
  std::optional<std::vector<ToolDefinition>> tools;  // system: tools this message introduces
  QuickTask task = QuickTask::kNone;                 // user: V4 quick instruction
  bool without_end = false;                          // assistant: no end-of-sentence token after it
};

struct ResponseFormat {
  enum class Kind { kText, kJsonObject, kJsonSchema, kRegex };
  Kind kind = Kind::kText;
  Json schema;        // kJsonSchema: as the client wrote it (this is what the prompt shows)
  std::string regex;  // kRegex
};

struct Conversation {
  std::vector<Message> messages;
  bool thinking = true;
  std::optional<ReasoningEffort> effort;  // absent when not thinking
  std::optional<int> effort_percent;      // 1..100, V4.1 only: replaces the level's number in the prompt
  std::vector<ToolDefinition> tools;
  ToolChoice tool_choice = ToolChoice::kAuto;
  ResponseFormat response_format;

  // True when the tools text stands in the prompt (and old reasoning is kept): chat.md 2.4.
  bool renders_tools() const { return !tools.empty() && tool_choice != ToolChoice::kNone; }
};

// What guided decoding should force on the output. `schema` by kind: JSON Schema text ("" = any JSON object); the
// regular expression; the tool list as a compact JSON array of {"type":"function","function":{name, description,
// parameters, strict}}, deferred tools with "defer_loading":true; a compact JSON array of texts; or EBNF rules.
struct OutputConstraint {
  enum class Kind { kJson, kRegex, kToolCall, kToolCallRequired, kChoice, kEbnf };
  Kind kind = Kind::kJson;
  std::string schema;
  std::string path = "response_format";  // the request's field that asked, for error messages
};

struct InferenceOptions {
  std::optional<uint32_t> max_tokens;  // as requested; resolve_max_tokens gives the default
  float temperature = 1;               // resolved by mode under recipe compatibility, else as requested
  float top_p = 1;
  bool logprobs = false;
  std::optional<uint32_t> top_logprobs;  // 0..20
  std::optional<uint64_t> seed;          // below 2^63
  std::optional<OutputConstraint> constraint;
  std::optional<OutputConstraint>
      content_constraint;  // where tools may be called: what an answer without calls must be
  // Beyond the original (decision 9); ignored under recipe compatibility.
  uint32_t n = 1;
  std::optional<uint32_t> top_k;
  std::optional<float> min_p;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::optional<float> repetition_penalty;
  std::vector<std::pair<int32_t, float>> logit_bias;  // token id, added to its logit
  uint32_t min_tokens = 0;
  bool ignore_eos = false;
  std::vector<int32_t> stop_token_ids;
  std::vector<std::string> bad_words;  // texts that may not be said, with or without a space before them
  bool processed_logprobs = false;     // log probabilities behind penalties, biases, masks and temperature
  bool one_call = false;               // no second tool call in the answer
  bool without_space = false;          // constrained JSON has no white space between its parts
  bool closes_at_max_tokens = false;   // a constrained answer is brought to its end before max_tokens cuts it
};

// Where the stream parser begins in thinking mode. "Start" drops leading newlines, the continuations keep them.
enum class ThinkingStage { kReasoningStart, kReasoningContinuation, kContentContinuation };

struct ParsingOptions {
  bool parse_tool_calls = false;
  bool starts_in_tool_calls = false;  // the prompt ends inside an opened call block; wins over the stage below
  bool parse_json_output = false;
  std::optional<ThinkingStage> thinking_stage;  // absent: thinking off, begins in the content
  bool keep_leading_newlines = false;           // thinking off and the answer continues a prefix
  std::vector<std::string> stop_sequences;
};

struct ChatRequest {
  std::string model;  // the name the client used
  PromptVersion version = PromptVersion::kV41;
  Conversation conversation;
  InferenceOptions inference;
  ParsingOptions parsing;
  bool stream = false;
  std::string user;                                 // safety attribution and cache isolation; "" when absent
  std::optional<std::string> previous_response_id;  // the server puts that response's turns before `messages`
};

}  // namespace deepinfer
