// SPDX-License-Identifier: MIT
#include "serve/openapi.h"

#include "base/check.h"
#include "protocol/codec.h"
#include "protocol/shape.h"
#include "protocol/text_completions.h"

namespace deepinfer {
namespace {

struct Description {
  const char* name;  // operationId
  const char* summary;
  const char* answer;  // JSON Schema of the 200 answer; or a media type without one
  bool streams = false;
};

constexpr const char* kChat =
    R"({"type":"object","required":["id","object","created","model","choices","usage","system_fingerprint"],"properties":{
"id":{"type":"string"},"object":{"const":"chat.completion"},"created":{"type":"integer"},"model":{"type":"string"},
"system_fingerprint":{"type":["string","null"]},"usage":{"$ref":"#/components/schemas/Usage"},
"choices":{"type":"array","minItems":1,"items":{"type":"object","required":["index","message","finish_reason","logprobs"],"properties":{
"index":{"type":"integer"},"logprobs":{"type":["object","null"]},
"finish_reason":{"enum":["stop","length","tool_calls","content_filter"]},
"message":{"type":"object","required":["role","content"],"properties":{"role":{"const":"assistant"},"content":{"type":["string","null"]},
"reasoning_content":{"type":"string"},"tool_calls":{"type":"array","items":{"type":"object","required":["id","type","function"],"properties":{
"id":{"type":"string"},"type":{"const":"function"},"function":{"type":"object","required":["name","arguments"],
"properties":{"name":{"type":"string"},"arguments":{"type":"string"}}}}}}}}}}}}})";
constexpr const char* kText =
    R"({"type":"object","required":["id","object","created","model","choices","usage"],"properties":{
"id":{"type":"string"},"object":{"const":"text_completion"},"created":{"type":"integer"},"model":{"type":"string"},
"usage":{"$ref":"#/components/schemas/Usage"},"choices":{"type":"array","minItems":1,"items":{"type":"object",
"required":["index","text","finish_reason","logprobs"],"properties":{"index":{"type":"integer"},"text":{"type":"string"},
"finish_reason":{"enum":["stop","length","content_filter"]},"logprobs":{"type":["object","null"]}}}}}})";
constexpr const char* kResponse =
    R"({"type":"object","required":["id","object","created_at","status","model","output","usage"],"properties":{
"id":{"type":"string"},"object":{"const":"response"},"created_at":{"type":"integer"},"model":{"type":"string"},
"status":{"enum":["completed","incomplete","failed","in_progress"]},"usage":{"type":["object","null"]},
"output":{"type":"array","items":{"type":"object","required":["type","id"],"properties":{"id":{"type":"string"},
"type":{"enum":["reasoning","message","function_call","custom_tool_call","tool_search_call"]}}}}}})";
constexpr const char* kDeleted =
    R"({"type":"object","required":["id","object","deleted"],"properties":{"id":{"type":"string"},"object":{"const":"response"},
"deleted":{"const":true}}})";
constexpr const char* kMessage =
    R"({"type":"object","required":["id","type","role","model","content","stop_reason","stop_sequence","usage"],"properties":{
"id":{"type":"string"},"type":{"const":"message"},"role":{"const":"assistant"},"model":{"type":"string"},
"stop_reason":{"enum":["end_turn","max_tokens","stop_sequence","tool_use","refusal"]},"stop_sequence":{"type":["string","null"]},
"content":{"type":"array","items":{"type":"object","required":["type"],"properties":{"type":{"enum":["text","thinking","tool_use"]}}}},
"usage":{"type":"object","required":["input_tokens","output_tokens"],"properties":{"input_tokens":{"type":"integer"},
"output_tokens":{"type":"integer"}}}}})";
constexpr const char* kCount =
    R"({"type":"object","required":["input_tokens"],"properties":{"input_tokens":{"type":"integer","minimum":0}}})";
constexpr const char* kModel =
    R"({"type":"object","required":["id","object","created","owned_by","max_model_len"],"properties":{"id":{"type":"string"},
"object":{"const":"model"},"created":{"type":"integer"},"owned_by":{"type":"string"},"max_model_len":{"type":"integer"}}})";
constexpr const char* kModels =
    R"({"type":"object","required":["object","data"],"properties":{"object":{"const":"list"},"data":{"type":"array","minItems":1,
"items":{"$ref":"#/components/schemas/Model"}}}})";
constexpr const char* kTokens =
    R"({"type":"object","required":["count","max_model_len","tokens"],"properties":{"count":{"type":"integer"},
"max_model_len":{"type":"integer"},"tokens":{"type":"array","items":{"type":"integer","minimum":0}}}})";
constexpr const char* kPrompt = R"({"type":"object","required":["prompt"],"properties":{"prompt":{"type":"string"}}})";
constexpr const char* kRequests =
    R"({"type":"object","required":["requests"],"properties":{"requests":{"type":"array","items":{"type":"object",
"required":["id","route","status","begin_unix_ms","end_ms"]}}}})";
constexpr const char* kHealth =
    R"({"type":"object","required":["status"],"properties":{"status":{"enum":["live","ready","draining","failed"]}}})";

constexpr Description kDescriptions[] = {
    {"createChatCompletion", "Chat Completions", kChat, true},
    {"createResponse", "Responses", kResponse, true},
    {"getResponse", "A stored response", kResponse},
    {"deleteResponse", "Forgets a stored response", kDeleted},
    {"createMessage", "Anthropic's Messages", kMessage, true},
    {"countMessageTokens", "Tokens that a Messages request would take", kCount},
    {"createCompletion", "Plain text or token ids continued; with a suffix, the hole between filled", kText, true},
    {"listModels", "The names of the model", kModels},
    {"getModel", "One name of the model", kModel},
    {"tokenize", "A text or a conversation as token ids", kTokens},
    {"detokenize", "Token ids as text", kPrompt},
    {"recentRequests", "Generations under way and the last that ended", kRequests},
    {"isLive", "The process answers", kHealth},
    {"isReady", "The model takes requests", kHealth},
    {"health", "As /health/ready", kHealth},
    {"metrics", "Figures in Prometheus' text format", "text/plain"},
    {"openapi", "This document", R"({"type":"object","required":["openapi","paths"]})"},
};

const Description& description_of(std::string_view name) {
  for (const Description& one : kDescriptions)
    if (one.name == name) return one;
  CHECK(false && "every operation is described");
  return kDescriptions[0];
}

Json parsed(const char* text) {
  auto json = parse_json(text);
  CHECK(json.ok());
  return std::move(json).value();
}

Json content(const char* type, Json schema) {
  return Json::Object{{type, Json::Object{{"schema", std::move(schema)}}}};
}

Json reference(const char* name) { return Json::Object{{"$ref", std::string("#/components/schemas/") + name}}; }

// The shape of a body, with the names that its model may have here.
Json model_body_schema(const Shape& shape, const std::vector<std::string>& served_names) {
  Json schema = shape.json_schema();
  schema.find("properties")
      ->set("model", Json::Object{{"enum", Json::Array(served_names.begin(), served_names.end())}});
  return schema;
}

// null: the operation takes no body.
Json body_schema(const ApiOperation& operation, const std::vector<std::string>& served_names) {
  const std::string_view name = operation.name;
  if (std::string_view(operation.method) != "POST") return {};
  if (operation.codec) return model_body_schema(find_codec(operation.codec)->shape(false), served_names);
  if (name == "createCompletion") return model_body_schema(text_completions_shape(), served_names);
  if (name == "detokenize")
    return parsed(R"({"type":"object","required":["tokens"],"properties":{"tokens":{"type":"array","items":
{"type":"integer","minimum":0}}}})");
  return parsed(R"({"anyOf":[{"type":"object","required":["prompt"],"properties":{"prompt":{"type":"string"},
"add_special_tokens":{"type":"boolean"}}},{"type":"object","required":["messages"],"properties":{"messages":{"type":"array"}}}]})");
}

// Where a request can go wrong before anybody looks at what it asks, the answer is a line of text.
Json refusal(const char* summary) {
  Json both = content("application/json", reference("Error"));
  both.set("text/plain", Json::Object{{"schema", Json::Object{{"type", "string"}}}});
  return Json::Object{{"description", summary}, {"content", std::move(both)}};
}

Json responses(const ApiOperation& operation, const Description& description, bool takes_body) {
  const bool is_text = std::string_view(description.answer).find('{') == std::string_view::npos;
  Json media = is_text ? content(description.answer, Json::Object{{"type", "string"}})
                       : content("application/json", parsed(description.answer));
  // An event is an object of its fields to some readers of the document and text to others: no type is stated.
  if (description.streams) media.set("text/event-stream", Json::Object{{"schema", Json::Object{}}});
  Json::Object all{{"200", Json::Object{{"description", "OK"}, {"content", std::move(media)}}},
                   {"400", refusal("The request cannot be read or asks for something that is not possible")}};
  if (!operation.open) all.emplace_back("401", refusal("No valid API key"));
  all.emplace_back("403", refusal("This client or key may not do that"));
  if (std::string_view(operation.path).ends_with('/'))
    all.emplace_back("404", refusal("There is nothing of that name"));
  all.emplace_back("405", refusal("Another method is meant"));
  if (takes_body) {
    all.emplace_back("413", refusal("The body is too large"));
    all.emplace_back("415", refusal("The body's encoding is not known"));
    all.emplace_back("429", refusal("The key's limits are reached"));
  }
  if (std::string_view(operation.path).starts_with("/health"))
    all.emplace_back(
        "503", Json::Object{{"description", "Not ready"}, {"content", content("application/json", parsed(kHealth))}});
  else all.emplace_back("503", refusal("Busy or stopping"));
  return all;
}

Json operation_object(const ApiOperation& operation, const std::vector<std::string>& served_names) {
  const Description& description = description_of(operation.name);
  Json schema = body_schema(operation, served_names);
  const bool takes_body = !schema.is_null();
  Json out = Json::Object{{"operationId", operation.name}, {"summary", description.summary}};
  if (std::string_view(operation.path).ends_with('/'))
    out.set("parameters", Json::Array{Json::Object{{"name", "id"},
                                                   {"in", "path"},
                                                   {"required", true},
                                                   {"schema", Json::Object{{"type", "string"}, {"minLength", 1}}}}});
  if (takes_body)
    out.set("requestBody",
            Json::Object{{"required", true}, {"content", content("application/json", std::move(schema))}});
  if (operation.open) out.set("security", Json::Array{});
  out.set("responses", responses(operation, description, takes_body));
  return out;
}

Json components() {
  Json schemas = Json::Object{
      {"Error", parsed(R"({"type":"object","required":["error"],"properties":{"error":{"type":"object",
"required":["message","type","param","code"],"properties":{"message":{"type":"string"},"type":{"type":"string"},
"param":{"type":["string","null"]},"code":{"type":["string","null"]}}}}})")},
      {"Usage",
       parsed(R"({"type":"object","required":["prompt_tokens","completion_tokens","total_tokens"],"properties":{
"prompt_tokens":{"type":"integer","minimum":0},"completion_tokens":{"type":"integer","minimum":0},
"total_tokens":{"type":"integer","minimum":0}}})")},
      {"Model", parsed(kModel)}};
  Json schemes = parsed(
      R"({"bearer":{"type":"http","scheme":"bearer"},"header":{"type":"apiKey","in":"header","name":"x-api-key"}})");
  return Json::Object{{"schemas", std::move(schemas)}, {"securitySchemes", std::move(schemes)}};
}

}  // namespace

Json openapi_document(std::span<const ApiOperation> operations, const std::string& version,
                      const std::vector<std::string>& served_names) {
  Json paths = Json::Object{};
  for (const ApiOperation& operation : operations) {
    std::string path = operation.path;
    if (path.ends_with('/')) path += "{id}";
    std::string method = operation.method;
    for (char& c : method) c = static_cast<char>(c - 'A' + 'a');
    if (paths.find(path) == nullptr) paths.set(path, Json::Object{});
    paths.find(path)->set(method, operation_object(operation, served_names));
  }
  std::string names;
  for (const std::string& name : served_names) names += (names.empty() ? "" : ", ") + name;
  return Json::Object{
      {"openapi", "3.1.0"},
      {"info", Json::Object{{"title", "DeepInfer"}, {"version", version}, {"description", "Models: " + names}}},
      {"paths", std::move(paths)},
      {"components", components()},
      {"security", Json::Array{Json::Object{{"bearer", Json::Array{}}}, Json::Object{{"header", Json::Array{}}}}}};
}

}  // namespace deepinfer
