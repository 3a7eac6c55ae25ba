// SPDX-License-Identifier: MIT
#include "protocol/messages_decode.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>
#include <unordered_set>

#include "chat/json_spelling.h"
#include "protocol/image_block.h"
#include "protocol/request_body.h"
#include "protocol/sampling_rule.h"
#include "protocol/stop_rule.h"
#include "protocol/thinking_rule.h"
#include "protocol/tool_rule.h"

namespace deepinfer {

namespace {

constexpr const char* kEachUse =
    "Each `tool_use` block must have a corresponding `tool_result` block in the next message.";

std::string lower_ascii(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c | 32);
  return out;
}

class Decoder {
 public:
  Decoder(Json& request, const DecodeOptions& options, DecodedRequest& out)
      : request_(request), options_(options), out_(out), chat_(out.chat), messages_(out.chat.conversation.messages) {}

  Refusal decode() {
    REFUSE_IF(choose_model(request_, options_, chat_));
    REFUSE_IF(read_tools());
    choose_thinking();
    read_system();
    REFUSE_IF(read_messages());
    Conversation& conversation = chat_.conversation;
    REFUSE_IF(settle_reasoning(options_, !tools_.empty(), "content[].thinking", conversation));
    REFUSE_IF(settle_tools(std::move(tools_), tool_wish(), options_, conversation));
    REFUSE_IF(settle_format(format_wish(), options_, chat_));
    REFUSE_IF(read_stop_sequences(request_.find("stop_sequences"), chat_.parsing.stop_sequences));
    REFUSE_IF(settle_sampling(sampling_wish(), options_, "max_tokens", chat_));
    REFUSE_IF(read_beyond_recipe());
    REFUSE_IF(check_image_limits(messages_, options_.limits));
    finish();
    return {};
  }

 private:
  // ---- tools

  Refusal read_tools() {
    Json* tools = member(request_, "tools");
    if (!tools) return {};
    for (size_t i = 0; i < tools->as_array().size(); ++i) {
      Json& tool = tools->as_array()[i];
      const std::string path = fmt::format("tools[{}]", i);
      if (const Json* type = member(tool, "type"); type && type->as_string() != "custom") {
        const bool drops =
            type->as_string().starts_with("web_search") && options_.messages_web_search == WebSearch::kDrop;
        if (!drops) return refuse(path + ": server tools are not supported", path);
        dropped_.insert(take_text(tool, "name"));
        continue;
      }
      if (!member(tool, "name")) return refuse_shape(path + ".name", "a value", "nothing");
      DeclaredTool declared;
      declared.has_parameters = true;
      declared.tool.name = take_text(tool, "name");
      REFUSE_IF(check_tool_name(declared.tool.name, path));
      declared.tool.description = take_optional_text(tool, "description");
      Json* schema = member(tool, "input_schema");
      declared.tool.parameters = schema ? std::move(*schema) : Json();
      if (const Json* strict = options_.recipe_compatible ? nullptr : member(tool, "strict"))
        declared.tool.strict = strict->as_bool();
      declared.tool.defer_loading = chat_.version == PromptVersion::kV41 && flag_member(tool, "defer_loading");
      tools_.push_back(std::move(declared));
    }
    const bool all_deferred =
        !tools_.empty() &&
        std::all_of(tools_.begin(), tools_.end(), [](const DeclaredTool& each) { return each.tool.defer_loading; });
    if (all_deferred)
      return refuse("tools: at least one tool must have defer_loading=false. All tools cannot be deferred.", "tools");
    return {};
  }

  const DeclaredTool* find_tool(const std::string& name) const {
    for (const DeclaredTool& each : tools_)
      if (each.tool.name == name) return &each;
    return nullptr;
  }

  ToolWish tool_wish() const {
    ToolWish wish;
    const Json* choice = member(request_, "tool_choice");
    if (!choice) return wish;
    const std::string& type = choice->find("type")->as_string();
    if (type == "none") wish.choice = ToolChoice::kNone;
    if (type == "any" && !options_.recipe_compatible)
      wish.choice = ToolChoice::kRequired;  // the original does not force a call
    if (type == "tool" && !dropped_.contains(choice->find("name")->as_string()))
      wish.name = choice->find("name")->as_string();
    return wish;
  }

  // Later versions of the API take a schema for the answer; the original knows none.
  FormatWish format_wish() {
    FormatWish wish;
    Json* config = options_.recipe_compatible ? nullptr : member(request_, "output_config");
    Json* format = config ? member(*config, "format") : nullptr;
    if (!format) return wish;
    wish.format.kind = ResponseFormat::Kind::kJsonSchema;
    wish.format.schema = std::move(*format->find("schema"));
    return wish;
  }

  void choose_thinking() {
    ThinkingWish wish;
    if (const Json* thinking = member(request_, "thinking"))
      wish.enabled = thinking->find("type")->as_string() != "disabled";
    if (const Json* config = member(request_, "output_config")) wish.effort = config->find("effort");
    apply_thinking(wish, options_, chat_.conversation);
  }

  // ---- messages

  Message& add(Role role) {
    Message& message = messages_.emplace_back();
    message.role = role;
    return message;
  }

  void read_system() {
    Json* system = member(request_, "system");
    if (!system) return;
    if (system->is_string()) {
      add(Role::kSystem).content.text = std::move(system->as_string());
      return;
    }
    ContentJoiner joiner;
    for (const Json& block : system->as_array()) {
      const std::string& text = block.find("text")->as_string();
      const bool is_billing = &block == &system->as_array().front() &&
                              lower_ascii(text.substr(0, std::string_view(kBillingHeader).size())) == kBillingHeader;
      if (!is_billing) joiner.add_text(text);
    }
    add(Role::kSystem).content = joiner.take();
  }

  Refusal read_messages() {
    Json::Array& messages = request_.find("messages")->as_array();
    if (messages.empty()) return refuse("messages: at least one message is required", "messages");
    if (messages.size() > options_.limits.messages_max)
      return refuse(
          fmt::format("messages: {} were sent, at most {} are accepted", messages.size(), options_.limits.messages_max),
          "messages");
    for (size_t i = 0; i < messages.size(); ++i) {
      const std::string& role = messages[i].find("role")->as_string();
      Json& content = *messages[i].find("content");
      const std::string path = fmt::format("messages.{}", i);
      if (content.is_array() && content.as_array().empty() && role != "system")
        return refuse(path + ": all messages must have non-empty content", path);
      if (role != "user") REFUSE_IF(refuse_unanswered(path + ": "));
      if (role == "user") REFUSE_IF(read_user(content, i));
      else if (role == "assistant") REFUSE_IF(read_assistant(content, path));
      else REFUSE_IF(read_system_message(content, path));
    }
    return refuse_unanswered(fmt::format("messages.{}:", messages.size() - 1));
  }

  // A block that stands in a message of the wrong role.
  static Refusal check_role(const std::string& type, std::string_view role, const std::string& path) {
    struct Rule {
      const char* type;
      const char* role;
      const char* name;
    };
    static constexpr Rule kRules[] = {{"tool_use", "assistant", "tool_use"},
                                      {"server_tool_use", "assistant", "tool_use"},
                                      {"tool_result", "user", "tool_result"},
                                      {"tool_addition", "system", "tool_addition"},
                                      {"web_search_tool_result", "assistant", "web_search_tool_result"}};
    if (type == "thinking" && role != "assistant")
      return refuse(path + ".content: thinking blocks may only be in `assistant` messages", path);
    for (const Rule& rule : kRules)
      if (type == rule.type && role != rule.role)
        return refuse(fmt::format("{}: `{}` blocks can only be in `{}` messages", path, rule.name, rule.role), path);
    return {};
  }

  Refusal refuse_unanswered(const std::string& start) const {
    std::vector<std::string_view> ids;
    for (const std::string& id : open_uses_)
      if (!answered_.contains(id)) ids.push_back(id);
    if (ids.empty()) return {};
    std::sort(ids.begin(), ids.end());
    return refuse(fmt::format("{}`tool_use` ids were found without `tool_result` blocks immediately after: {}. {}",
                              start, fmt::join(ids, ", "), kEachUse),
                  "messages");
  }

  static std::string document_text(const Json& block) {
    const Json* media = member(*block.find("source"), "media_type");
    return fmt::format("[Unsupported document type: {}]", media ? media->as_string() : "unknown");
  }

  // Text, image and document blocks, which may stand in any message. `path` is the image's, `block_path` the error's.
  Refusal join_plain_block(Json& block, const std::string& path, const std::string& block_path, ContentJoiner& joiner) {
    const std::string& type = block.find("type")->as_string();
    if (type == "text") {
      joiner.add_text(block.find("text")->as_string());
    } else if (type == "document") {
      joiner.add_text(document_text(block));
    } else if (type == "image" && chat_.version == PromptVersion::kV4) {
      joiner.add_text(kUnsupportedImage);
    } else if (type == "image") {
      ImageSource image;
      REFUSE_IF(read_image(block, path, block_path, image));
      joiner.add_image(std::move(image));
    }
    return {};
  }

  Refusal read_user(Json& content, size_t idx) {
    const std::string path = fmt::format("messages.{}", idx);
    if (content.is_string()) {
      REFUSE_IF(refuse_unanswered(path + ": "));
      add(Role::kUser).content.text = std::move(content.as_string());
      return {};
    }
    std::vector<ToolDefinition> introduced;
    for (size_t j = 0; j < content.as_array().size(); ++j) {
      Json& block = content.as_array()[j];
      REFUSE_IF(check_role(block.find("type")->as_string(), "user", path));
      if (block.find("type")->as_string() == "tool_result") {
        REFUSE_IF(read_result(block, fmt::format("{}.content.{}", path, j), introduced));
        continue;
      }
      REFUSE_IF(refuse_unanswered(path + ": "));
      ContentJoiner joiner;
      const std::string at = fmt::format("{}.content[{}]", path, j);
      REFUSE_IF(join_plain_block(block, at, at, joiner));
      add(Role::kUser).content = joiner.take();
    }
    REFUSE_IF(refuse_unanswered(fmt::format("messages.{}:", idx - (idx > 0))));
    open_uses_.clear();
    answered_.clear();
    if (!introduced.empty() && chat_.version == PromptVersion::kV41) add(Role::kSystem).tools = std::move(introduced);
    return {};
  }

  Refusal read_result(Json& block, const std::string& path, std::vector<ToolDefinition>& introduced) {
    std::string id = take_text(block, "tool_use_id");
    if (std::find(open_uses_.begin(), open_uses_.end(), id) == open_uses_.end())
      return refuse(fmt::format("unexpected `{}: tool_use_id` found in `tool_result` blocks: {}. Each `tool_result` "
                                "block must have a corresponding "
                                "`tool_use` block in the previous message.",
                                path, id),
                    path);
    if (!answered_.insert(id).second)
      return refuse(
          fmt::format("{}: each tool_use must have a single result. Found multiple `tool_result` blocks with id: {}",
                      path, id),
          path);
    Json* content = member(block, "content");
    MessageContent read;
    if (content && content->is_string()) read.text = std::move(content->as_string());
    if (content && content->is_array()) REFUSE_IF(read_result_blocks(content->as_array(), path, introduced, read));
    Message& message = add(Role::kTool);
    message.tool_call_id = std::move(id);
    message.content = std::move(read);
    return {};
  }

  Refusal read_result_blocks(Json::Array& blocks, const std::string& path, std::vector<ToolDefinition>& introduced,
                             MessageContent& out) {
    for (const Json& block : blocks) {  // references first: they are refused before any image is looked at
      if (block.find("type")->as_string() != "tool_reference") continue;
      const std::string& name = block.find("tool_name")->as_string();
      const DeclaredTool* tool = find_tool(name);
      if (!tool) return refuse(fmt::format("{}: tool reference '{}' not found in available tools", path, name), path);
      introduced.push_back(tool->tool);
    }
    ContentJoiner joiner;
    for (size_t k = 0; k < blocks.size(); ++k) {
      if (blocks[k].find("type")->as_string() == "tool_reference")
        joiner.add_text(blocks[k].find("tool_name")->as_string());
      else
        REFUSE_IF(join_plain_block(blocks[k], path + ".tool_result", fmt::format("{}.tool_result.content[{}]", path, k),
                                   joiner));
    }
    out = joiner.take();
    return {};
  }

  Refusal read_assistant(Json& content, const std::string& path) {
    Message& message = add(Role::kAssistant);
    if (content.is_string()) {
      message.content.text = std::move(content.as_string());
      return {};
    }
    std::string& text = message.content.text;
    for (size_t j = 0; j < content.as_array().size(); ++j) {
      Json& block = content.as_array()[j];
      const std::string& type = block.find("type")->as_string();
      REFUSE_IF(check_role(type, "assistant", path));
      if (type == "tool_use") {
        REFUSE_IF(read_use(block, fmt::format("{}.content.{}", path, j), message));
      } else if (type == "thinking") {
        std::string thought = take_text(block, "thinking");
        message.reasoning = message.reasoning ? *message.reasoning + "\n\n" + thought : std::move(thought);
      } else if (type == "server_tool_use" || type == "web_search_tool_result") {
        if (options_.messages_web_search == WebSearch::kReject)
          return refuse("Unsupported content block: server tools are not supported", path);
      } else {
        REFUSE_IF(refuse_unanswered(fmt::format("{}.{}: ", path, j)));
        ContentJoiner joiner;
        const std::string at = fmt::format("{}.content[{}]", path, j);
        REFUSE_IF(join_plain_block(block, at, at, joiner));
        const MessageContent read = joiner.take();
        if (!read.images.empty()) return refuse("Image in assistant message is unsupported", path);
        if (!text.empty()) text += "\n\n";
        text += read.text;
      }
    }
    return {};
  }

  Refusal read_use(Json& block, const std::string& path, Message& message) {
    ToolCall call;
    call.id = take_text(block, "id");
    call.name = take_text(block, "name");
    call.arguments = spelled_json(*block.find("input"), {NumberSpelling::kPlain, true});
    if (std::find(open_uses_.begin(), open_uses_.end(), call.id) != open_uses_.end())
      return refuse(path + ": `tool_use` ids must be unique", path);
    open_uses_.push_back(call.id);
    if (!message.tool_calls) message.tool_calls.emplace();
    message.tool_calls->push_back(std::move(call));
    return {};
  }

  Refusal read_system_message(Json& content, const std::string& path) {
    ContentJoiner joiner;
    std::vector<ToolDefinition> added;
    if (content.is_string()) joiner.add_text(content.as_string());
    if (content.is_array())
      for (size_t j = 0; j < content.as_array().size(); ++j) {
        Json& block = content.as_array()[j];
        REFUSE_IF(check_role(block.find("type")->as_string(), "system", path));
        if (block.find("type")->as_string() != "tool_addition") {
          REFUSE_IF(join_plain_block(block, path, fmt::format("{}.content[{}]", path, j), joiner));
          continue;
        }
        const std::string& name = block.find("tool")->find("name")->as_string();
        const DeclaredTool* tool = find_tool(name);
        const std::string at = fmt::format("{}.content.{}", path, j);
        if (!tool) return refuse(fmt::format("{}: `tool_addition` references unknown tool '{}'", at, name), at);
        added.push_back(tool->tool);
      }
    MessageContent read = joiner.take();
    if (chat_.version == PromptVersion::kV41) {
      Message& message = add(Role::kSystem);
      message.content = std::move(read);
      if (!added.empty()) message.tools = std::move(added);
    } else if (!read.text.empty()) {
      add(Role::kUser).content.text = fmt::format("<system-reminder>\n{}\n</system-reminder>", read.text);
    }
    return {};
  }

  // ---- sampling

  SamplingWish sampling_wish() const {
    SamplingWish wish;
    wish.temperature = float_member(request_, "temperature");
    wish.top_p = float_member(request_, "top_p");
    wish.max_tokens = unsigned_member(request_, "max_tokens");
    wish.lowers_max_tokens = true;
    return wish;
  }

  Refusal read_beyond_recipe() {
    if (options_.recipe_compatible) return {};
    if (const auto value = unsigned_member(request_, "top_k")) chat_.inference.top_k = static_cast<uint32_t>(*value);
    const Json* choice = member(request_, "tool_choice");
    chat_.inference.one_call = choice && flag_member(*choice, "disable_parallel_tool_use");
    const Json* config = member(request_, "output_config");
    const Json* effort = config ? member(*config, "effort") : nullptr;
    if (!effort || !effort->is_integer() || effort->as_int() >= 1) return {};
    return refuse("Invalid output_config.effort value, the valid range of output_config.effort is [1, 100]",
                  "output_config.effort");
  }

  void finish() {
    chat_.stream = flag_member(request_, "stream");
    if (const Json* metadata = member(request_, "metadata"))
      if (const Json* user = member(*metadata, "user_id")) chat_.user = user->as_string();
    if (chat_.conversation.thinking) chat_.parsing.thinking_stage = ThinkingStage::kReasoningStart;
    ResponseContext& context = out_.response;
    context.stream = chat_.stream;
    context.thinking = chat_.conversation.thinking;
    context.recipe_compatible = options_.recipe_compatible;
  }

  Json& request_;
  const DecodeOptions& options_;
  DecodedRequest& out_;
  ChatRequest& chat_;
  std::vector<Message>& messages_;
  std::vector<DeclaredTool> tools_;
  std::unordered_set<std::string> dropped_;  // names of server tools that were left out
  std::vector<std::string> open_uses_;       // calls of the assistant message before, in order
  std::unordered_set<std::string> answered_;
};

}  // namespace

Refusal decode_messages(std::string_view body, const DecodeOptions& options, DecodedRequest& out) {
  out = {};
  Json request;
  REFUSE_IF(read_body(body, messages_shape(options.recipe_compatible), options, request));
  return Decoder(request, options, out).decode();
}

}  // namespace deepinfer
