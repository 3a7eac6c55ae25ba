// SPDX-License-Identifier: MIT
#include "protocol/chat_completions_decode.h"

#include <fmt/format.h>

#include <charconv>
#include <string>
#include <unordered_set>

#include "protocol/image_block.h"
#include "protocol/request_body.h"
#include "protocol/sampling_rule.h"
#include "protocol/stop_rule.h"
#include "protocol/structured_output.h"
#include "protocol/thinking_rule.h"
#include "protocol/tool_rule.h"

namespace deepinfer {

namespace {

constexpr const char* kUnanswered =
    "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'";

class Decoder {
 public:
  Decoder(Json& request, const DecodeOptions& options, DecodedRequest& out)
      : request_(request), options_(options), out_(out), chat_(out.chat) {}

  Refusal decode() {
    REFUSE_IF(choose_model(request_, options_, chat_));
    REFUSE_IF(read_tools());
    choose_thinking();
    REFUSE_IF(read_messages());
    Conversation& conversation = chat_.conversation;
    REFUSE_IF(settle_reasoning(options_, !tools_.empty(), "reasoning_content", conversation));
    REFUSE_IF(check_prefix_place());
    REFUSE_IF(check_json_word());
    const bool declares_tools = !tools_.empty();
    REFUSE_IF(settle_tools(std::move(tools_), tool_wish(), options_, conversation));
    REFUSE_IF(check_prefix_use(declares_tools));
    REFUSE_IF(read_stop_sequences(request_.find("stop"), chat_.parsing.stop_sequences));
    chat_.stream = flag_member(request_, "stream");
    if (member(request_, "stream_options") && !chat_.stream)
      return refuse("stream_options should be set along with stream = true", "stream_options");
    REFUSE_IF(settle_format(format_wish(), options_, chat_));
    REFUSE_IF(settle_sampling(sampling_wish(), options_, "max_tokens", chat_));
    REFUSE_IF(read_beyond_recipe());
    REFUSE_IF(check_image_limits(conversation.messages, options_.limits));
    set_parsing_stage();
    set_response_context();
    return {};
  }

 private:
  Refusal read_tools() {
    Json* tools = member(request_, "tools");
    if (!tools) return {};
    for (size_t i = 0; i < tools->as_array().size(); ++i) {
      Json& function = *tools->as_array()[i].find("function");
      DeclaredTool declared;
      declared.tool.name = take_text(function, "name");
      REFUSE_IF(check_tool_name(declared.tool.name, fmt::format("tools[{}].function", i)));
      declared.tool.description = take_optional_text(function, "description");
      if (const Json* strict = member(function, "strict")) declared.tool.strict = strict->as_bool();
      if (Json* parameters = member(function, "parameters")) {
        declared.has_parameters = true;
        declared.tool.parameters = std::move(*parameters);
      }
      tools_.push_back(std::move(declared));
    }
    return {};
  }

  void choose_thinking() {
    ThinkingWish wish;
    if (const Json* thinking = member(request_, "thinking"))
      wish.enabled = thinking->find("type")->as_string() != "disabled";
    wish.effort = member(request_, "reasoning_effort");
    if (const Json* kwargs = options_.recipe_compatible ? nullptr : member(request_, "chat_template_kwargs"))
      take_template_arguments(*kwargs, wish);
    apply_thinking(wish, options_, chat_.conversation);
  }

  // What vLLM's and SGLang's clients hand to a template; the protocol's own fields win.
  static void take_template_arguments(const Json& kwargs, ThinkingWish& wish) {
    for (const char* name : {"thinking", "enable_thinking"})
      if (const Json* thinks = member(kwargs, name); thinks && !wish.enabled) wish.enabled = thinks->as_bool();
    if (!wish.effort) wish.effort = member(kwargs, "reasoning_effort");
  }

  // ---- messages

  Refusal read_messages() {
    Json::Array& messages = request_.find("messages")->as_array();
    if (messages.empty()) return refuse("Empty input messages", "messages");
    if (messages.size() > options_.limits.messages_max)
      return refuse(
          fmt::format("messages: {} were sent, at most {} are accepted", messages.size(), options_.limits.messages_max),
          "messages");
    for (size_t i = 0; i < messages.size(); ++i) {
      const std::string& role = messages[i].find("role")->as_string();
      if (role != "tool") REFUSE_IF(refuse_unanswered(i));
      if (role == "system" || role == "developer") REFUSE_IF(read_system(messages[i], i));
      else if (role == "user") REFUSE_IF(read_user(messages[i], i));
      else if (role == "assistant") REFUSE_IF(read_assistant(messages[i], i));
      else if (role == "tool") REFUSE_IF(read_tool_result(messages[i], i));
      else add(Role::kLatestReminder).content.text = take_text(messages[i], "content");
    }
    return refuse_unanswered(messages.size());
  }

  // `idx` is the message that should have been the next result.
  Refusal refuse_unanswered(size_t idx) const {
    if (num_results_due_ == 0) return {};
    return refuse(fmt::format("{}. (insufficient tool messages following tool_calls message)", kUnanswered),
                  fmt::format("messages[{}]", idx));
  }

  Message& add(Role role) {
    Message& message = chat_.conversation.messages.emplace_back();
    message.role = role;
    return message;
  }

  Refusal read_content(Json* content, size_t message_idx, MessageContent& out, bool admits_images = true) {
    if (!content) return {};
    if (content->is_string()) {
      out.text = std::move(content->as_string());
      return {};
    }
    Json::Array& blocks = content->as_array();
    if (chat_.version == PromptVersion::kV41) REFUSE_IF(check_images(blocks, message_idx, admits_images));
    ContentJoiner joiner;
    for (size_t i = 0; i < blocks.size(); ++i) {
      Json* image_url = blocks[i].find("image_url");
      if (blocks[i].find("type")->as_string() == "text") {
        joiner.add_text(blocks[i].find("text")->as_string());
      } else if (chat_.version == PromptVersion::kV4) {
        joiner.add_text(kUnsupportedImage);
      } else {
        ImageSource image;
        REFUSE_IF(read_image_address(take_text(*image_url, "url"), image_url->find("detail"),
                                     fmt::format(".messages[{}]", message_idx), image));
        joiner.add_image(std::move(image));
      }
    }
    out = joiner.take();
    return {};
  }

  // First pass over the images of a message; files become image addresses.
  static Refusal check_images(Json::Array& blocks, size_t message_idx, bool admits_images) {
    const std::string path = fmt::format(".messages[{}]", message_idx);
    bool holds_image = false;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const std::string& type = blocks[i].find("type")->as_string();
      holds_image = holds_image || type != "text";
      if (type == "image_url") REFUSE_IF(check_image_url(blocks[i], path, i));
      if (type != "file") continue;
      std::string address;
      REFUSE_IF(take_file(blocks[i], path, address));
      blocks[i].set("image_url", Json::Object{{"url", std::move(address)}});
    }
    if (admits_images || !holds_image) return {};
    return refuse("Image in assistant message is not supported", fmt::format("messages[{}].content", message_idx));
  }

  Refusal read_system(Json& message, size_t idx) {
    Message& added = add(Role::kSystem);
    REFUSE_IF(read_content(message.find("content"), idx, added.content));
    drop_billing_header(added.content);
    if (added.content.text.empty() && added.content.images.empty()) chat_.conversation.messages.pop_back();
    return {};
  }

  Refusal read_user(Json& message, size_t idx) {
    Message& added = add(Role::kUser);
    REFUSE_IF(read_content(message.find("content"), idx, added.content));
    const Json* task = options_.recipe_compatible ? nullptr : member(message, "task");
    if (!task) return {};
    const std::string path = fmt::format("messages[{}].task", idx);
    if (chat_.version != PromptVersion::kV4) return refuse(path + ": quick tasks belong to the V4 models", path);
    static constexpr std::pair<const char*, QuickTask> kTasks[] = {
        {"action", QuickTask::kAction}, {"query", QuickTask::kQuery}, {"authority", QuickTask::kAuthority},
        {"domain", QuickTask::kDomain}, {"title", QuickTask::kTitle}, {"read_url", QuickTask::kReadUrl}};
    for (const auto& [name, value] : kTasks)
      if (task->as_string() == name) added.task = value;
    return {};
  }

  Refusal read_assistant(Json& message, size_t idx) {
    Json* calls = member(message, "tool_calls");
    if (!calls && !member(message, "content"))
      return refuse("Invalid assistant message: content or tool_calls must be set", fmt::format("messages[{}]", idx));
    Message& added = add(Role::kAssistant);
    REFUSE_IF(read_content(member(message, "content"), idx, added.content, false));
    added.reasoning = take_optional_text(message, "reasoning_content");
    added.prefix = flag_member(message, "prefix");
    if (!options_.recipe_compatible) added.without_end = flag_member(message, "wo_eos");
    if (!calls) return {};
    return read_calls(*calls, idx, added.tool_calls.emplace());
  }

  Refusal read_calls(Json& calls, size_t idx, std::vector<ToolCall>& out) {
    if (calls.as_array().empty())
      return refuse(fmt::format("Invalid 'messages[{}].tool_calls': empty array. Expected an array with minimum length "
                                "1, but got an empty array instead.",
                                idx),
                    fmt::format("messages[{}].tool_calls", idx));
    open_calls_.clear();
    for (Json& call : calls.as_array()) {
      Json& function = *call.find("function");
      out.push_back({take_text(call, "id"), take_text(function, "name"), take_text(function, "arguments")});
      if (!open_calls_.insert(out.back().id).second) return refuse_duplicate(out.back().id, idx);
    }
    num_results_due_ = out.size();
    answered_.clear();
    return {};
  }

  static Refusal refuse_duplicate(const std::string& id, size_t idx) {
    return refuse(fmt::format("Duplicate value for 'tool_call_id' of {} in message[{}]", id, idx),
                  fmt::format("messages[{}]", idx));
  }

  Refusal read_tool_result(Json& message, size_t idx) {
    std::string id = take_text(message, "tool_call_id");
    const std::string path = fmt::format("messages[{}].tool_call_id", idx);
    if (num_results_due_ == 0)
      return refuse("Messages with role 'tool' must be a response to a preceding message with 'tool_calls'", path);
    if (!open_calls_.contains(id))
      return refuse(fmt::format("{}, The following tool_call_ids did not have response messages: {}", kUnanswered, id),
                    path);
    if (!answered_.insert(id).second) return refuse_duplicate(id, idx);
    --num_results_due_;
    Message& added = add(Role::kTool);
    added.tool_call_id = std::move(id);
    return read_content(message.find("content"), idx, added.content);
  }

  // ---- what the conversation as a whole must satisfy

  Refusal check_prefix_place() const {
    const std::vector<Message>& messages = chat_.conversation.messages;
    for (size_t i = 0; i + 1 < messages.size(); ++i)
      if (messages[i].prefix)
        return refuse(
            "Invalid completion message: prefix set true with message which is not final message or message role is "
            "not assistant",
            "messages");
    return {};
  }

  bool continues() const { return !chat_.conversation.messages.empty() && chat_.conversation.messages.back().prefix; }

  Refusal check_json_word() const {
    if (format_name() != "json_object" || mentions_json(chat_.conversation.messages)) return {};
    return refuse("Prompt must contain the word 'json' in some form to use 'response_format' of type 'json_object'.",
                  "response_format");
  }

  Refusal check_prefix_use(bool declares_tools) const {
    if (!continues()) return {};
    if (format_name() == "json_object")
      return refuse("response_format json_object should not be used with prefix", "response_format");
    bool calls = declares_tools;
    for (const Message& message : chat_.conversation.messages)
      calls = calls || message.tool_calls || message.role == Role::kTool;
    return calls ? refuse("Function call should not be used with prefix", "tools") : Refusal();
  }

  std::string format_name() const {
    const Json* format = member(request_, "response_format");
    return format ? format->find("type")->as_string() : "";
  }

  ToolWish tool_wish() const {
    ToolWish wish;
    const Json* choice = member(request_, "tool_choice");
    if (!choice) return wish;
    if (choice->is_object()) wish.name = choice->find("function")->find("name")->as_string();
    else if (choice->as_string() == "none") wish.choice = ToolChoice::kNone;
    else if (choice->as_string() == "required") wish.choice = ToolChoice::kRequired;
    return wish;
  }

  FormatWish format_wish() {
    FormatWish wish;
    Json* format = member(request_, "response_format");
    if (!format) return wish;
    wish.excludes_strict_tools = true;
    const std::string name = format_name();
    if (name == "json_object") wish.format.kind = ResponseFormat::Kind::kJsonObject;
    if (name == "regex") {
      wish.format.kind = ResponseFormat::Kind::kRegex;
      wish.format.regex = take_text(*format, "regex");
    }
    if (name == "json_schema") {
      Json& schema = *format->find("json_schema");
      wish.format.kind = ResponseFormat::Kind::kJsonSchema;
      wish.format.schema = std::move(*schema.find("schema"));
      wish.strict = flag_member(schema, "strict");
    }
    return wish;
  }

  SamplingWish sampling_wish() const {
    SamplingWish wish;
    wish.n = unsigned_member(request_, "n");
    wish.presence_penalty = float_member(request_, "presence_penalty");
    wish.frequency_penalty = float_member(request_, "frequency_penalty");
    wish.temperature = float_member(request_, "temperature");
    wish.top_p = float_member(request_, "top_p");
    wish.logprobs = flag_member(request_, "logprobs");
    wish.top_logprobs = unsigned_member(request_, "top_logprobs");
    wish.max_tokens = unsigned_member(request_, "max_tokens");
    if (!wish.max_tokens && !options_.recipe_compatible)
      wish.max_tokens = unsigned_member(request_, "max_completion_tokens");
    wish.seed = unsigned_member(request_, "seed");
    return wish;
  }

  // Fields that the original ignores (decision 9).
  Refusal read_beyond_recipe() {
    if (options_.recipe_compatible) return {};
    InferenceOptions& inference = chat_.inference;
    REFUSE_IF(read_structured_output(request_, options_.limits, chat_));
    const Json* parallel = member(request_, "parallel_tool_calls");
    inference.one_call = parallel && !parallel->as_bool();
    REFUSE_IF(read_top_k(request_, inference));
    inference.min_p = float_member(request_, "min_p");
    if (inference.min_p && !(*inference.min_p >= 0 && *inference.min_p <= 1))
      return refuse("Invalid min_p value, the valid range of min_p is [0, 1]", "min_p");
    inference.repetition_penalty = float_member(request_, "repetition_penalty");
    if (inference.repetition_penalty && !(*inference.repetition_penalty > 0 && *inference.repetition_penalty <= 2))
      return refuse("Invalid repetition_penalty value, the valid range of repetition_penalty is (0, 2]",
                    "repetition_penalty");
    inference.min_tokens = static_cast<uint32_t>(unsigned_member(request_, "min_tokens").value_or(0));
    inference.ignore_eos = flag_member(request_, "ignore_eos");
    if (const Json* ids = member(request_, "stop_token_ids"))
      for (const Json& id : ids->as_array()) inference.stop_token_ids.push_back(static_cast<int32_t>(id.as_int()));
    if (const Json* words = member(request_, "bad_words"))
      for (const Json& word : words->as_array()) {
        if (word.as_string().empty()) return refuse("Invalid 'bad_words': an empty text", "bad_words");
        inference.bad_words.push_back(word.as_string());
      }
    if (const Json* mode = member(request_, "logprobs_mode"))
      inference.processed_logprobs = mode->as_string() == "processed_logprobs";
    const Json* effort = member(request_, "reasoning_effort");
    if (effort && effort->is_integer() && effort->as_int() == 0)
      return refuse("Invalid reasoning_effort value, the valid range of reasoning_effort is [1, 100]",
                    "reasoning_effort");
    return read_logit_bias();
  }

  Refusal read_logit_bias() {
    const Json* bias = member(request_, "logit_bias");
    if (!bias) return {};
    for (const auto& [key, value] : bias->as_object()) {
      int32_t id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      const std::string path = "logit_bias." + key;
      if (error != std::errc() || end != key.data() + key.size() || id < 0)
        return refuse(fmt::format("Invalid '{}': the key is no token id", path), path);
      if (!(value.as_double() >= -100 && value.as_double() <= 100))
        return refuse(fmt::format("Invalid '{}': the valid range of a bias is [-100, 100]", path), path);
      chat_.inference.logit_bias.emplace_back(id, static_cast<float>(value.as_double()));
    }
    return {};
  }

  // ---- results

  void set_parsing_stage() {
    ParsingOptions& parsing = chat_.parsing;
    const bool has_content = continues() && !chat_.conversation.messages.back().content.text.empty();
    const bool has_reasoning = continues() && !chat_.conversation.messages.back().reasoning.value_or("").empty();
    parsing.keep_leading_newlines = continues() && !chat_.conversation.thinking;
    if (!chat_.conversation.thinking) return;
    parsing.thinking_stage = has_content     ? ThinkingStage::kContentContinuation
                             : has_reasoning ? ThinkingStage::kReasoningContinuation
                                             : ThinkingStage::kReasoningStart;
  }

  void set_response_context() {
    ResponseContext& context = out_.response;
    context.stream = chat_.stream;
    context.thinking = chat_.conversation.thinking;
    if (const Json* options = member(request_, "stream_options"))
      context.include_usage = flag_member(*options, "include_usage");
    context.starts_after_reasoning = chat_.parsing.thinking_stage == ThinkingStage::kContentContinuation;
    context.logprobs = chat_.inference.logprobs;
    context.recipe_compatible = options_.recipe_compatible;
    if (const Json* user = member(request_, "user"); user && user->is_string()) chat_.user = user->as_string();
  }

  Json& request_;
  const DecodeOptions& options_;
  DecodedRequest& out_;
  ChatRequest& chat_;
  std::vector<DeclaredTool> tools_;
  std::unordered_set<std::string> open_calls_, answered_;  // of the latest assistant message with calls
  size_t num_results_due_ = 0;
};

}  // namespace

Refusal decode_chat_completions(std::string_view body, const DecodeOptions& options, DecodedRequest& out) {
  out = {};
  Json request;
  REFUSE_IF(read_body(body, chat_completions_shape(options.recipe_compatible), options, request));
  return Decoder(request, options, out).decode();
}

}  // namespace deepinfer
