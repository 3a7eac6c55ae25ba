// SPDX-License-Identifier: MIT
#include "protocol/encode_record.h"

#include <fmt/format.h>

#include <cstdlib>
#include <span>

#include "base/sha256.h"
#include "chat/token_budget.h"
#include "protocol/error_body.h"

namespace deepinfer {

namespace {

// A 32-bit float with seven digits.
Json seven_digits(float value) { return std::strtod(fmt::format("{:.7g}", value).c_str(), nullptr); }

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(uint64_t{*value}) : Json();
}

const char* name_of(ReasoningEffort effort) {
  static constexpr const char* kNames[] = {"low", "high", "xhigh", "max"};
  return kNames[static_cast<int>(effort)];
}
const char* name_of(ToolChoice choice) {
  static constexpr const char* kNames[] = {"auto", "none", "required"};
  return kNames[static_cast<int>(choice)];
}
const char* name_of(ResponseFormat::Kind kind) {
  static constexpr const char* kNames[] = {"text", "json_object", "json_schema", "regex"};
  return kNames[static_cast<int>(kind)];
}
const char* name_of(OutputConstraint::Kind kind) {
  static constexpr const char* kNames[] = {"json", "regex", "tool_call", "tool_call_required", "choice", "ebnf"};
  return kNames[static_cast<int>(kind)];
}
const char* name_of(ThinkingStage stage) {
  static constexpr const char* kNames[] = {"ReasoningStart", "ReasoningContinuation", "ContentContinuation"};
  return kNames[static_cast<int>(stage)];
}
const char* name_of(ImageSource::Kind kind) {
  static constexpr const char* kNames[] = {"data_url", "url", "bytes"};
  return kNames[static_cast<int>(kind)];
}
const char* name_of(ImageSource::Detail detail) {
  static constexpr const char* kNames[] = {"low", "high", "original", "auto"};
  return kNames[static_cast<int>(detail)];
}

Json error_record(const RequestError& error, bool recipe_compatible) {
  Json out(Json::Object{{"stage", error.stage == RequestError::Stage::kParse ? "parse" : "convert"},
                        {"status", error.http_status},
                        {"exact", error.exact},
                        {"message", error.message}});
  const std::string type = error_type(error.http_status);
  out.set("type", type);
  out.set("param", recipe_compatible || error.param.empty() ? Json() : Json(error.param));
  out.set("code", type);
  return out;
}

Json inference_record(const InferenceOptions& inference) {
  Json constraint;
  if (inference.constraint)
    constraint = Json::Object{{"kind", name_of(inference.constraint->kind)}, {"schema", inference.constraint->schema}};
  return Json::Object{{"max_tokens", or_null(inference.max_tokens)},
                      {"temperature", seven_digits(inference.temperature)},
                      {"top_p", seven_digits(inference.top_p)},
                      {"logprobs", inference.logprobs},
                      {"top_logprobs", or_null(inference.top_logprobs)},
                      {"seed", or_null(inference.seed)},
                      {"constraint", std::move(constraint)}};
}

Json parsing_record(const ParsingOptions& parsing) {
  Json::Array stops;
  for (const std::string& stop : parsing.stop_sequences) stops.emplace_back(stop);
  return Json::Object{
      {"parse_tool_calls", parsing.parse_tool_calls},
      {"starts_in_tool_calls", parsing.starts_in_tool_calls},
      {"parse_json_output", parsing.parse_json_output},
      {"thinking_initial_stage", parsing.thinking_stage ? Json(name_of(*parsing.thinking_stage)) : Json()},
      {"stop_sequences", std::move(stops)}};
}

Json image_record(const ImageSource& image) {
  Json out(Json::Object{{"kind", name_of(image.kind)}, {"detail", name_of(image.detail)}, {"path", image.path}});
  if (image.kind == ImageSource::Kind::kUrl) out.set("url", image.value);
  else
    out.set("data_url_sha256",
            to_hex(sha256(std::span(reinterpret_cast<const uint8_t*>(image.value.data()), image.value.size()))));
  return out;
}

Json resolved_record(const ChatRequest& chat, size_t prompt_tokens, uint64_t context_limit) {
  const Result<uint32_t> resolved = resolve_max_tokens(chat, prompt_tokens, context_limit);
  if (!resolved.ok()) return Json::Object{{"error", resolved.status().message()}};
  return Json::Object{{"max_tokens", uint64_t{resolved.value()}}};
}

Json settings_record(const ChatRequest& chat, Json record) {
  const Conversation& conversation = chat.conversation;
  record.set("thinking", conversation.thinking);
  record.set("effort", conversation.effort ? Json(name_of(*conversation.effort)) : Json());
  record.set("tool_choice", name_of(conversation.tool_choice));
  Json::Array tools;
  for (const ToolDefinition& tool : conversation.tools) tools.emplace_back(tool.name);
  record.set("tools", std::move(tools));
  record.set("response_format", name_of(conversation.response_format.kind));
  record.set("stream", chat.stream);
  record.set("inference", inference_record(chat.inference));
  return record;
}

Status apply_option(const std::string& name, const Json& value, DecodeOptions& options) {
  const auto wrong = [&] {
    return invalid_argument(fmt::format("options.{}: unexpected value {}", name, to_json(value)));
  };
  const bool is_count = value.is_integer() && value.as_uint() <= UINT32_MAX;
  if (name == "default_thinking_mode" && value.is_bool()) options.default_thinking = value.as_bool();
  else if (name == "thinking_max_tokens_upper_bound" && is_count)
    options.thinking_max_tokens = static_cast<uint32_t>(value.as_uint());
  else if (name == "non_thinking_max_tokens_upper_bound" && is_count)
    options.plain_max_tokens = static_cast<uint32_t>(value.as_uint());
  else if (name == "model_alias" && value.is_object()) {
    for (const auto& [alias, version] : value.as_object()) {
      if (!version.is_string() || (version.as_string() != "v41" && version.as_string() != "v4")) return wrong();
      options.models[alias] = version.as_string() == "v41" ? PromptVersion::kV41 : PromptVersion::kV4;
    }
  } else if (value.is_string() && name == "reasoning_content_behavior" &&
             (value.as_string() == "Reject" || value.as_string() == "FillEmpty")) {
    options.missing_reasoning =
        value.as_string() == "Reject" ? MissingReasoning::kReject : MissingReasoning::kFillEmpty;
  } else if (value.is_string() && (value.as_string() == "Drop" || value.as_string() == "Reject") &&
             name.ends_with("_web_search")) {
    const WebSearch choice = value.as_string() == "Drop" ? WebSearch::kDrop : WebSearch::kReject;
    if (name == "responses_web_search") options.responses_web_search = choice;
    else if (name == "messages_web_search") options.messages_web_search = choice;
    else return wrong();
  } else {
    return wrong();
  }
  return {};
}

}  // namespace

Status apply_decode_options(const Json& members, DecodeOptions& options) {
  if (!members.is_object()) return invalid_argument("options: expected an object");
  for (const auto& [name, value] : members.as_object()) TRY(apply_option(name, value, options));
  return {};
}

Result<RecordEncoder> RecordEncoder::create(std::shared_ptr<const Tokenizer> tokenizer, bool recipe_compatible) {
  ASSIGN_OR_RETURN(ControlTokens tokens, ControlTokens::find(*tokenizer, PromptVersion::kV41));
  return RecordEncoder(std::move(tokenizer), std::move(tokens), recipe_compatible);
}

Result<Json> RecordEncoder::encode(const Json& record) const {
  const Json* protocol = record.find("protocol");
  if (!protocol || !protocol->is_string()) return invalid_argument("protocol: expected a string");
  const Codec* codec = find_codec(protocol->as_string());
  if (!codec)
    return invalid_argument(
        fmt::format("protocol: expected chat, responses or messages, got \"{}\"", protocol->as_string()));
  const Json *request = record.find("request"), *text = record.find("request_text");
  if (!request && !(text && text->is_string()))
    return invalid_argument("expected a member \"request\" or a string \"request_text\"");
  DecodeOptions options;
  options.recipe_compatible = recipe_compatible_;
  if (const Json* given = record.find("options"); given && given->is_object())
    TRY(apply_decode_options(*given, options));
  const Json* limit = record.find("context_limit");
  const uint64_t context_limit = limit && limit->is_integer() ? limit->as_uint() : kDefaultContextTokens;
  ASSIGN_OR_RETURN(const EncodedRequest encoded,
                   encode_body(*codec, text && text->is_string() ? text->as_string() : to_json(*request), options));
  return record_of(encoded, context_limit);
}

Result<EncodedRequest> RecordEncoder::encode_body(const Codec& codec, std::string_view body,
                                                  const DecodeOptions& options) const {
  EncodedRequest out;
  out.refusal = codec.decode(body, options, out.decoded);
  if (out.refusal) return out;
  return encode_decoded(std::move(out.decoded));
}

Result<EncodedRequest> RecordEncoder::encode_decoded(DecodedRequest decoded) const {
  EncodedRequest out;
  out.decoded = std::move(decoded);
  ASSIGN_OR_RETURN(EncodedConversation encoded,
                   encode_prompt(out.decoded.chat.conversation, {out.decoded.chat.version}, tokens_));
  out.prompt = render(encoded.prompt);
  out.ids = tokenizer_->encode(encoded.prompt);
  out.images = std::move(encoded.images);
  return out;
}

Json RecordEncoder::record_of(const EncodedRequest& request, uint64_t context_limit) const {
  if (request.refusal) return Json::Object{{"error", error_record(*request.refusal, recipe_compatible_)}};
  const ChatRequest& chat = request.decoded.chat;
  Json out(
      Json::Object{{"version", chat.version == PromptVersion::kV41 ? "v41" : "v4"}, {"prompt", request.prompt.text}});
  Json::Array spans, id_list, images;
  for (const Range& span : request.prompt.control_spans) spans.push_back(Json::Array{span.begin, span.end});
  for (const TokenId id : request.ids) id_list.emplace_back(id);
  for (const ImageSource* image : request.images) images.push_back(image_record(*image));
  out.set("special", std::move(spans));
  out.set("ids", std::move(id_list));
  out = settings_record(chat, std::move(out));
  out.set("resolved", resolved_record(chat, request.ids.size(), context_limit));
  out.set("parsing", parsing_record(chat.parsing));
  out.set("images", std::move(images));
  return out;
}

}  // namespace deepinfer
