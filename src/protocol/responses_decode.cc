// SPDX-License-Identifier: MIT
#include "protocol/responses_decode.h"

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <string>
#include <utility>

#include "chat/json_spelling.h"
#include "protocol/call_group.h"
#include "protocol/image_block.h"
#include "protocol/request_body.h"
#include "protocol/responses_tools.h"
#include "protocol/sampling_rule.h"
#include "protocol/thinking_rule.h"
#include "protocol/tool_rule.h"

namespace deepinfer {

namespace {

constexpr JsonSpelling kCompact{NumberSpelling::kPlain, false};

// A 32-bit float as the shortest decimal that reads back as it.
Json shortest(float value) {
  char buffer[32];
  const char* end = std::to_chars(buffer, buffer + sizeof buffer, value).ptr;
  double wide = 0;
  std::from_chars(buffer, end, wide);
  return wide;
}

class Decoder {
 public:
  Decoder(Json& request, const DecodeOptions& options, DecodedRequest& out)
      : request_(request), options_(options), out_(out), chat_(out.chat), messages_(out.chat.conversation.messages) {}

  Refusal decode() {
    REFUSE_IF(choose_model(request_, options_, chat_));
    REFUSE_IF(refuse_kept_elsewhere());
    set_echo();
    if (const Json* id = options_.recipe_compatible ? nullptr : member(request_, "previous_response_id"))
      chat_.previous_response_id = id->as_string();
    ResponsesTools names(chat_.version, options_, out_.response);
    CallGroup group(messages_, chat_.previous_response_id.has_value());
    names_ = &names;
    group_ = &group;
    if (const Json* tools = member(request_, "tools")) REFUSE_IF(names.declare(*tools, "tools", false, tools_));
    choose_thinking();
    REFUSE_IF(read_input());
    Conversation& conversation = chat_.conversation;
    REFUSE_IF(settle_reasoning(options_, !tools_.empty(), "reasoning_text", conversation));
    ToolWish wish;
    REFUSE_IF(read_tool_choice(wish));
    REFUSE_IF(settle_tools(std::move(tools_), wish, options_, conversation));
    if (format_name() == "json_object" && !mentions_json(messages_))
      return refuse(
          "Response input messages must contain the word 'json' in some form to use 'text.format' of type "
          "'json_object'.",
          "text.format");
    REFUSE_IF(settle_format(format_wish(), options_, chat_));
    REFUSE_IF(settle_sampling(sampling_wish(), options_, "max_output_tokens", chat_));
    REFUSE_IF(check_reasoning_number());
    const Json* parallel = options_.recipe_compatible ? nullptr : member(request_, "parallel_tool_calls");
    chat_.inference.one_call = parallel && !parallel->as_bool();
    REFUSE_IF(check_image_limits(messages_, options_.limits));
    finish();
    return {};
  }

 private:
  // What only its maker's servers keep: leaving it out unsaid would answer another question.
  Refusal refuse_kept_elsewhere() const {
    if (options_.recipe_compatible) return {};
    for (const char* name : {"conversation", "prompt"})
      if (member(request_, name))
        return refuse(fmt::format("{}: there are none here; send the turns, or previous_response_id", name), name);
    return {};
  }

  void choose_thinking() {
    ThinkingWish wish;
    if (const Json* reasoning = member(request_, "reasoning")) wish.effort = reasoning->find("effort");
    apply_thinking(wish, options_, chat_.conversation);
  }

  Refusal check_reasoning_number() const {
    const Json* reasoning = member(request_, "reasoning");
    const Json* effort = reasoning ? member(*reasoning, "effort") : nullptr;
    if (!effort || !effort->is_integer() || effort->as_int() >= 1) return {};
    return refuse("Invalid reasoning.effort value, the valid range of reasoning.effort is [1, 100]",
                  "reasoning.effort");
  }

  // ---- input

  Message& add(Role role) {
    Message& message = messages_.emplace_back();
    message.role = role;
    return message;
  }

  Refusal read_input() {
    Json* input = member(request_, "input");
    std::string instructions = take_text(request_, "instructions");
    if (!input && instructions.empty()) return refuse("Either input or instructions must be provided", "input");
    if (!instructions.empty()) add(Role::kSystem).content.text = std::move(instructions);
    if (!input) return {};
    if (input->is_string()) {
      add(Role::kUser).content.text = std::move(input->as_string());
      return {};
    }
    Json::Array& items = input->as_array();
    if (items.empty()) return refuse("Input items array must not be empty", "input");
    if (items.size() > options_.limits.messages_max)
      return refuse(
          fmt::format("input: {} items were sent, at most {} are accepted", items.size(), options_.limits.messages_max),
          "input");
    if (chat_.version == PromptVersion::kV41) REFUSE_IF(declare_found_tools(items));
    for (size_t i = 0; i < items.size(); ++i) REFUSE_IF(read_item(items[i], i));
    return group_->close();
  }

  // Tools that searches found are declared before any item is read, so that calls before the search know their names.
  Refusal declare_found_tools(const Json::Array& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      const Json* type = items[i].find("type");
      if (!type || type->as_string() != "tool_search_output") continue;
      std::vector<DeclaredTool> found;
      REFUSE_IF(names_->declare(*items[i].find("tools"), fmt::format("input[{}].tools", i), true, found));
      std::vector<ToolDefinition>& told = found_tools_[i];
      for (DeclaredTool& tool : found) {
        told.push_back(tool.tool);
        tools_.push_back(std::move(tool));
      }
    }
    return {};
  }

  Refusal read_item(Json& item, size_t idx) {
    const bool follows_output = std::exchange(follows_output_, false);
    const Json* tag = item.find("type");
    const std::string type = tag ? tag->as_string() : "message";
    const bool searches = chat_.version == PromptVersion::kV41;
    if (type == "message") return read_message(item, idx, follows_output);
    if (type == "reasoning") return read_reasoning(item);
    if (type == "web_search_call") return group_->close();
    if (type == "function_call") {
      const Json* name_space = member(item, "namespace");
      std::string name =
          names_->name_of_call(item.find("name")->as_string(), name_space ? &name_space->as_string() : nullptr);
      return group_->add_call({take_text(item, "call_id"), std::move(name), take_text(item, "arguments")}, idx);
    }
    if (type == "custom_tool_call") {
      const Json arguments(Json::Object{{"input", take_text(item, "input")}});
      return group_->add_call({take_text(item, "call_id"), take_text(item, "name"), to_json(arguments)}, idx);
    }
    if (type == "tool_search_call" && searches)
      return group_->add_call(
          {take_text(item, "call_id"), "tool_search", spelled_json(*item.find("arguments"), kCompact)}, idx);
    if (type == "function_call_output" || type == "custom_tool_call_output") return read_output(item, idx);
    if (type == "tool_search_output" && searches) return read_search_output(item, idx);
    return {};  // other kinds of items say nothing to the model
  }

  Refusal read_content(Json* content, const std::string& path, const char* list_name, MessageContent& out,
                       bool admits_images = true) {
    if (!content) return {};
    if (content->is_string()) {
      out.text = std::move(content->as_string());
      return {};
    }
    Json::Array& blocks = content->as_array();
    const auto block_path = [&](size_t i) { return fmt::format("{}.{}[{}]", path, list_name, i); };
    const auto is_image = [&](size_t i) {
      return chat_.version == PromptVersion::kV41 && blocks[i].find("type")->as_string() == "input_image";
    };
    bool holds_image = false;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (is_image(i)) REFUSE_IF(check_input_image(blocks[i], block_path(i)));
      holds_image = holds_image || is_image(i);
    }
    if (holds_image && !admits_images) return refuse(path + ": Image in assistant message is unsupported", path);
    ContentJoiner joiner;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const std::string& type = blocks[i].find("type")->as_string();
      if (type == "input_file") {
        joiner.add_text("[Unsupported Document]");
      } else if (is_image(i)) {
        ImageSource image;
        REFUSE_IF(read_input_image(blocks[i], path, image));
        joiner.add_image(std::move(image));
      } else {
        joiner.add_text(type == "input_image" ? kUnsupportedImage : blocks[i].find("text")->as_string());
      }
    }
    out = joiner.take();
    return {};
  }

  static bool is_resize_note(const Json& content) {
    if (!content.is_array() || content.as_array().size() != 1) return false;
    const Json& block = content.as_array()[0];
    if (block.find("type")->as_string() != "input_text") return false;
    const std::string& text = block.find("text")->as_string();
    return text.starts_with("<image_resize_notice>") && text.ends_with("</image_resize_notice>");
  }

  Refusal read_message(Json& item, size_t idx, bool follows_output) {
    const std::string role = item.find("role")->as_string(), path = fmt::format("input[{}]", idx);
    Json* content = item.find("content");
    const bool is_note = role == "developer" && chat_.version == PromptVersion::kV41 && follows_output &&
                         group_->has_calls() && is_resize_note(*content);
    MessageContent read;
    if (is_note) {
      REFUSE_IF(read_content(content, path, "content", read));
      group_->add_note(std::move(read));
      return {};
    }
    REFUSE_IF(group_->close());
    REFUSE_IF(read_content(content, path, "content", read, role != "assistant"));
    if (role != "assistant") {
      const bool is_system = role == "system" || (role == "developer" && chat_.version == PromptVersion::kV41);
      add(is_system ? Role::kSystem : Role::kUser).content = std::move(read);
      return {};
    }
    if (messages_.empty() || messages_.back().role != Role::kAssistant || messages_.back().tool_calls) {
      add(Role::kAssistant).content = std::move(read);
      return {};
    }
    std::string& text = messages_.back().content.text;
    if (!text.empty() && !read.text.empty()) text += "\n\n";
    text += read.text;
    return {};
  }

  Refusal read_reasoning(Json& item) {
    REFUSE_IF(group_->close());
    std::string text;
    if (const Json* content = member(item, "content"))
      for (const Json& part : content->as_array()) {
        if (&part != &content->as_array().front()) text += '\n';
        text += part.find("text")->as_string();
      }
    if (text.empty()) return {};
    const bool joins = !messages_.empty() && messages_.back().role == Role::kAssistant &&
                       messages_.back().content.text.empty() && !messages_.back().tool_calls;
    Message& message = joins ? messages_.back() : add(Role::kAssistant);
    message.reasoning = message.reasoning ? *message.reasoning + "\n" + text : std::move(text);
    return {};
  }

  Refusal read_output(Json& item, size_t idx) {
    Json* id = member(item, "call_id");
    if (!id) {
      MessageContent content;
      REFUSE_IF(read_content(member(item, "output"), fmt::format("input[{}]", idx), "output", content));
      REFUSE_IF(group_->close());
      add(Role::kTool).content = std::move(content);
      return {};
    }
    const bool is_custom = item.find("type")->as_string() == "custom_tool_call_output";  // its id is looked at first
    MessageContent content;
    if (is_custom) REFUSE_IF(group_->check_output(id->as_string(), idx));
    REFUSE_IF(read_content(member(item, "output"), fmt::format("input[{}]", idx), "output", content));
    if (!is_custom) REFUSE_IF(group_->check_output(id->as_string(), idx));
    REFUSE_IF(group_->add_output(std::move(id->as_string()), std::move(content)));
    follows_output_ = true;
    return {};
  }

  Refusal read_search_output(Json& item, size_t idx) {
    const Json& tools = *item.find("tools");
    bool found_unknown = false;
    MessageContent content;
    content.text = spelled_json(ResponsesTools::found_tools(tools, found_unknown), kCompact);
    std::string id = take_text(item, "call_id");
    REFUSE_IF(group_->check_output(id, idx));
    REFUSE_IF(group_->add_output(std::move(id), std::move(content)));
    if (found_unknown)
      return refuse(fmt::format("input[{}]: the enum variant ResponsesTool::Unsupported cannot be serialized", idx),
                    fmt::format("input[{}].tools", idx));
    group_->add_found_tools(std::move(found_tools_[idx]));
    return {};
  }

  // ---- tools, format, sampling

  Refusal read_tool_choice(ToolWish& wish) const {
    const Json* choice = member(request_, "tool_choice");
    if (!choice) return {};
    if (choice->is_string()) {
      if (choice->as_string() == "none") wish.choice = ToolChoice::kNone;
      if (choice->as_string() == "required") wish.choice = ToolChoice::kRequired;
      return {};
    }
    const std::string& type = choice->find("type")->as_string();
    if (type == "function" || type == "custom") wish.name = choice->find("name")->as_string();
    else if (options_.responses_web_search == WebSearch::kReject)
      return refuse("Server tools are not supported", "tool_choice");
    return {};
  }

  const Json* format() const {
    const Json* text = member(request_, "text");
    return text ? member(*text, "format") : nullptr;
  }
  std::string format_name() const { return format() ? format()->find("type")->as_string() : ""; }

  FormatWish format_wish() const {
    FormatWish wish;
    const std::string name = format_name();
    wish.excludes_strict_tools = name == "json_object" || name == "json_schema";
    if (name == "json_object") wish.format.kind = ResponseFormat::Kind::kJsonObject;
    if (name == "json_schema") {
      wish.format.kind = ResponseFormat::Kind::kJsonSchema;
      wish.format.schema = *format()->find("schema");
      wish.strict = flag_member(*format(), "strict");
    }
    return wish;
  }

  SamplingWish sampling_wish() const {
    SamplingWish wish;
    wish.temperature = float_member(request_, "temperature");
    wish.top_p = float_member(request_, "top_p");
    wish.top_logprobs = unsigned_member(request_, "top_logprobs");
    wish.logprobs = wish.top_logprobs.has_value();
    wish.max_tokens = unsigned_member(request_, "max_output_tokens");
    return wish;
  }

  // ---- what the response repeats

  void echo_if_present(const char* key) {
    if (const Json* value = member(request_, key)) out_.response.echo.set(key, *value);
  }

  void set_echo() {
    Json& echo = out_.response.echo;
    for (const char* key : {"instructions", "max_output_tokens", "top_logprobs", "user"}) echo_if_present(key);
    if (!options_.recipe_compatible)
      for (const char* key :
           {"metadata", "parallel_tool_calls", "previous_response_id", "prompt_cache_key", "safety_identifier"})
        echo_if_present(key);
    for (const char* key : {"temperature", "top_p"})
      if (const auto value = float_member(request_, key)) echo.set(key, shortest(*value));
    if (const Json* reasoning = member(request_, "reasoning")) {
      const Json* summary = member(*reasoning, "summary");
      if (!summary) summary = member(*reasoning, "generate_summary");
      const Json* effort = member(*reasoning, "effort");
      echo.set("reasoning",
               Json::Object{{"effort", effort ? *effort : Json()}, {"summary", summary ? *summary : Json()}});
    }
    if (member(request_, "text")) echo.set("text", echoed_text());
    if (const Json* choice = member(request_, "tool_choice")) echo.set("tool_choice", echoed_choice(*choice));
    if (const Json* tools = member(request_, "tools")) echo.set("tools", ResponsesTools::echoed(*tools));
  }

  Json echoed_text() const {
    Json form(Json::Object{{"type", format() ? format_name() : "text"}});
    if (format_name() == "json_schema")
      for (const char* key : {"name", "schema", "description", "strict"}) {
        const Json* value = format()->find(key);
        form.set(key, value ? *value : Json());
      }
    const Json* verbosity = member(*member(request_, "text"), "verbosity");
    return Json::Object{{"format", std::move(form)}, {"verbosity", verbosity ? *verbosity : Json()}};
  }

  static Json echoed_choice(const Json& choice) {
    if (choice.is_string()) return choice;
    Json echoed(Json::Object{{"type", *choice.find("type")}});
    const std::string& type = choice.find("type")->as_string();
    if (type == "function" || type == "custom") echoed.set("name", *choice.find("name"));
    return echoed;
  }

  void finish() {
    chat_.stream = flag_member(request_, "stream");
    chat_.user = take_text(request_, "user");
    if (chat_.conversation.thinking) chat_.parsing.thinking_stage = ThinkingStage::kReasoningStart;
    ResponseContext& context = out_.response;
    context.stream = chat_.stream;
    context.thinking = chat_.conversation.thinking;
    context.logprobs = chat_.inference.logprobs;
    context.recipe_compatible = options_.recipe_compatible;
    const Json* store = member(request_, "store");
    context.stores = !options_.recipe_compatible && (!store || store->as_bool());
  }

  Json& request_;
  const DecodeOptions& options_;
  DecodedRequest& out_;
  ChatRequest& chat_;
  std::vector<Message>& messages_;
  std::vector<DeclaredTool> tools_;
  std::map<size_t, std::vector<ToolDefinition>> found_tools_;  // by the index of the search output
  bool follows_output_ = false;                                // the item before was the output of a call
  ResponsesTools* names_ = nullptr;
  CallGroup* group_ = nullptr;
};

}  // namespace

Refusal decode_responses(std::string_view body, const DecodeOptions& options, DecodedRequest& out) {
  out = {};
  Json request;
  REFUSE_IF(read_body(body, responses_shape(options.recipe_compatible), options, request));
  return Decoder(request, options, out).decode();
}

}  // namespace deepinfer
