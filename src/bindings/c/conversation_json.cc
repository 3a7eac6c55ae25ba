// SPDX-License-Identifier: MIT
#include "bindings/c/conversation_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>

#include "base/utf8.h"

namespace deepinfer {
namespace {

constexpr std::string_view kRoles[] = {"system", "user", "assistant", "tool", "latest_reminder"};
constexpr std::string_view kChoices[] = {"auto", "none", "required"};
constexpr std::string_view kEfforts[] = {"low", "high", "xhigh", "max"};
constexpr std::string_view kTasks[] = {"none", "action", "query", "authority", "domain", "title", "read_url"};
constexpr std::string_view kImageKinds[] = {"data_url", "url", "bytes"};
constexpr std::string_view kDetails[] = {"low", "high", "original", "auto"};
constexpr std::string_view kFormats[] = {"text", "json_object", "json_schema", "regex"};

template <typename Enum>
Json name_of(std::span<const std::string_view> names, Enum value) {
  return names[static_cast<size_t>(value)];
}
Json or_null(const std::optional<std::string>& text) { return text ? Json(*text) : Json(); }
Json or_null(const std::optional<bool>& flag) { return flag ? Json(*flag) : Json(); }

Json json_of(const ToolDefinition& tool) {
  return Json::Object{{"name", tool.name},
                      {"description", or_null(tool.description)},
                      {"parameters", tool.parameters},
                      {"strict", or_null(tool.strict)},
                      {"defer_loading", tool.defer_loading}};
}

Json json_of(const std::vector<ToolDefinition>& tools) {
  Json::Array list;
  for (const ToolDefinition& tool : tools) list.push_back(json_of(tool));
  return list;
}

Json json_of(const Message& message) {
  Json out(Json::Object{{"role", name_of(kRoles, message.role)}, {"content", message.content.text}});
  if (!message.content.images.empty()) {
    Json::Array images;
    for (size_t i = 0; i < message.content.images.size(); ++i) {
      const ImageSource& image = message.content.images[i];
      const bool is_text = image.kind != ImageSource::Kind::kBytes;
      images.push_back(Json::Object{{"offset", uint64_t{message.content.image_offsets[i]}},
                                    {"kind", name_of(kImageKinds, image.kind)},
                                    {"detail", name_of(kDetails, image.detail)},
                                    {"path", image.path},
                                    {"value", is_text ? Json(image.value) : Json("")}});
    }
    out.set("images", std::move(images));
  }
  if (message.reasoning) out.set("reasoning", *message.reasoning);
  if (message.tool_calls) {
    Json::Array calls;
    for (const ToolCall& call : *message.tool_calls)
      calls.push_back(Json::Object{{"id", call.id}, {"name", call.name}, {"arguments", call.arguments}});
    out.set("tool_calls", std::move(calls));
  }
  if (message.tool_call_id) out.set("tool_call_id", *message.tool_call_id);
  if (message.prefix) out.set("prefix", true);
  if (message.tools) out.set("tools", json_of(*message.tools));
  if (message.task != QuickTask::kNone) out.set("task", name_of(kTasks, message.task));
  if (message.without_end) out.set("without_end", true);
  return out;
}

// Reads the members of one object; each is asked for once, and finish() complains of those nobody asked for.
class Members {
 public:
  Members(const Json& value, std::string path) : value_(value), path_(std::move(path)) {}

  std::string at(std::string_view name) const {
    return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
  }
  Status wrong(std::string_view name, std::string_view expected, const Json& found) const {
    return invalid_argument(fmt::format("{}: expected {}, found {}", at(name), expected, to_string(found.kind())));
  }
  // nullptr where the member is absent or null.
  const Json* find(std::string_view name) {
    known_.push_back(name);
    const Json* member = value_.find(name);
    return member != nullptr && !member->is_null() ? member : nullptr;
  }
  Status read(std::string_view name, std::string& out) {
    const Json* member = find(name);
    if (member == nullptr) return {};
    if (!member->is_string()) return wrong(name, "a string", *member);
    out = member->as_string();
    return {};
  }
  Status read(std::string_view name, std::optional<std::string>& out) {
    if (value_.find(name) != nullptr && !value_.find(name)->is_null()) out.emplace();
    std::string text;
    TRY(read(name, text));
    if (out) out = std::move(text);
    return {};
  }
  Status read(std::string_view name, bool& out) {
    const Json* member = find(name);
    if (member == nullptr) return {};
    if (!member->is_bool()) return wrong(name, "true or false", *member);
    out = member->as_bool();
    return {};
  }
  Status read(std::string_view name, std::optional<bool>& out) {
    bool flag = false;
    const Json* member = value_.find(name);
    TRY(read(name, flag));
    if (member != nullptr && !member->is_null()) out = flag;
    return {};
  }
  template <typename Enum>
  Status read(std::string_view name, std::span<const std::string_view> names, Enum& out) {
    const Json* member = find(name);
    if (member == nullptr) return {};
    const auto found = member->is_string() ? std::find(names.begin(), names.end(), member->as_string()) : names.end();
    if (found == names.end()) {
      return invalid_argument(
          fmt::format("{}: expected one of {}, found {}", at(name), fmt::join(names, ", "), to_json(*member)));
    }
    out = static_cast<Enum>(found - names.begin());
    return {};
  }
  Result<const Json::Array*> array(std::string_view name) {
    const Json* member = find(name);
    if (member == nullptr) return static_cast<const Json::Array*>(nullptr);
    if (!member->is_array()) return wrong(name, "an array", *member);
    return &member->as_array();
  }
  Status finish() const {
    if (!value_.is_object()) {
      return invalid_argument(fmt::format("{}: expected an object, found {}", path_, to_string(value_.kind())));
    }
    for (const auto& [name, member] : value_.as_object()) {
      if (std::find(known_.begin(), known_.end(), name) == known_.end()) {
        return invalid_argument(fmt::format("{}: no such member", at(name)));
      }
    }
    return {};
  }

 private:
  const Json& value_;
  std::string path_;
  std::vector<std::string_view> known_;
};

Status read_tool(const Json& value, const std::string& path, ToolDefinition& out) {
  Members members(value, path);
  TRY(members.read("name", out.name));
  TRY(members.read("description", out.description));
  if (const Json* parameters = members.find("parameters")) out.parameters = *parameters;
  TRY(members.read("strict", out.strict));
  TRY(members.read("defer_loading", out.defer_loading));
  return members.finish();
}

Status read_tools(Members& members, std::vector<ToolDefinition>& out) {
  ASSIGN_OR_RETURN(const Json::Array* const tools, members.array("tools"));
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i)
    TRY(read_tool((*tools)[i], fmt::format("{}[{}]", members.at("tools"), i), out.emplace_back()));
  return {};
}

Status read_images(Members& members, MessageContent& out) {
  ASSIGN_OR_RETURN(const Json::Array* const images, members.array("images"));
  for (size_t i = 0; images != nullptr && i < images->size(); ++i) {
    const std::string path = fmt::format("{}[{}]", members.at("images"), i);
    Members image((*images)[i], path);
    ImageSource& source = out.images.emplace_back();
    TRY(image.read("kind", kImageKinds, source.kind));
    TRY(image.read("detail", kDetails, source.detail));
    TRY(image.read("path", source.path));
    TRY(image.read("value", source.value));
    const Json* offset = image.find("offset");
    const uint64_t before = out.image_offsets.empty() ? 0 : out.image_offsets.back();
    const bool is_count = offset != nullptr && offset->kind() == Json::Kind::kInt && offset->as_int() >= 0;
    const uint64_t at = is_count ? offset->as_uint() : UINT64_MAX;
    const bool cuts = at < out.text.size() && (static_cast<uint8_t>(out.text[at]) & 0xC0) == 0x80;
    if (at > out.text.size() || at < before || cuts) {
      return invalid_argument(
          fmt::format("{}.offset: expected a byte offset into content at a character, ascending", path));
    }
    out.image_offsets.push_back(at);
    TRY(image.finish());
  }
  return {};
}

Status read_calls(Members& members, std::optional<std::vector<ToolCall>>& out) {
  ASSIGN_OR_RETURN(const Json::Array* const calls, members.array("tool_calls"));
  if (calls == nullptr) return {};
  out.emplace();
  for (size_t i = 0; i < calls->size(); ++i) {
    Members call((*calls)[i], fmt::format("{}[{}]", members.at("tool_calls"), i));
    ToolCall& read = out->emplace_back();
    TRY(call.read("id", read.id));
    TRY(call.read("name", read.name));
    TRY(call.read("arguments", read.arguments));
    TRY(call.finish());
  }
  return {};
}

Status read_message(const Json& value, const std::string& path, Message& out) {
  Members members(value, path);
  TRY(members.read("role", kRoles, out.role));
  TRY(members.read("content", out.content.text));
  TRY(read_images(members, out.content));
  TRY(members.read("reasoning", out.reasoning));
  TRY(read_calls(members, out.tool_calls));
  TRY(members.read("tool_call_id", out.tool_call_id));
  TRY(members.read("prefix", out.prefix));
  if (const Json* tools = value.find("tools"); tools != nullptr && !tools->is_null()) {
    out.tools.emplace();
    TRY(read_tools(members, *out.tools));
  }
  TRY(members.read("task", kTasks, out.task));
  TRY(members.read("without_end", out.without_end));
  return members.finish();
}

Status read_format(Members& members, ResponseFormat& out) {
  const Json* value = members.find("response_format");
  if (value == nullptr) return {};
  Members format(*value, members.at("response_format"));
  TRY(format.read("kind", kFormats, out.kind));
  if (const Json* schema = format.find("schema")) out.schema = *schema;
  TRY(format.read("regex", out.regex));
  return format.finish();
}

}  // namespace

Json json_of(const Conversation& conversation) {
  Json::Array messages;
  for (const Message& message : conversation.messages) messages.push_back(json_of(message));
  Json format(Json::Object{{"kind", name_of(kFormats, conversation.response_format.kind)}});
  if (conversation.response_format.kind == ResponseFormat::Kind::kJsonSchema)
    format.set("schema", conversation.response_format.schema);
  if (conversation.response_format.kind == ResponseFormat::Kind::kRegex)
    format.set("regex", conversation.response_format.regex);
  return Json::Object{{"messages", std::move(messages)},
                      {"thinking", conversation.thinking},
                      {"effort", conversation.effort ? name_of(kEfforts, *conversation.effort) : Json()},
                      {"effort_percent", conversation.effort_percent ? Json(*conversation.effort_percent) : Json()},
                      {"tools", json_of(conversation.tools)},
                      {"tool_choice", name_of(kChoices, conversation.tool_choice)},
                      {"response_format", std::move(format)}};
}

Result<Conversation> read_conversation(const Json& value) {
  Conversation out;
  Members members(value, "");
  ASSIGN_OR_RETURN(const Json::Array* const messages, members.array("messages"));
  for (size_t i = 0; messages != nullptr && i < messages->size(); ++i)
    TRY(read_message((*messages)[i], fmt::format("messages[{}]", i), out.messages.emplace_back()));
  TRY(members.read("thinking", out.thinking));
  if (members.find("effort") != nullptr) TRY(members.read("effort", kEfforts, out.effort.emplace()));
  if (const Json* percent = members.find("effort_percent")) {
    if (percent->kind() != Json::Kind::kInt || percent->as_int() < 1 || percent->as_int() > 100) {
      return invalid_argument("effort_percent: expected 1 to 100, found " + to_json(*percent));
    }
    out.effort_percent = static_cast<int>(percent->as_int());
  }
  TRY(read_tools(members, out.tools));
  TRY(members.read("tool_choice", kChoices, out.tool_choice));
  TRY(read_format(members, out.response_format));
  TRY(members.finish());
  return out;
}

}  // namespace deepinfer
