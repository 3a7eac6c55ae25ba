// SPDX-License-Identifier: MIT
// The V4.1 template: every message keeps its place; system messages have their own marker.
#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "chat/prompt_versions.h"

namespace deepinfer {

namespace {

const ToolMarkup& markup() { return tool_markup(PromptVersion::kV41); }

bool is_turn_input(const Message& message) { return message.role == Role::kUser || message.role == Role::kTool; }

using MessageList = std::vector<const Message*>;

// Puts the results of one run of user and tool messages into the order of the calls they answer. Users and results
// without an id keep their places. An unknown id counts as the first call's.
void sort_results(MessageList& messages, size_t begin, size_t end, const std::vector<ToolCall>& calls) {
  std::unordered_map<std::string_view, size_t> position;
  for (size_t i = 0; i < calls.size(); ++i) position[calls[i].id] = i;
  std::vector<size_t> slots;
  MessageList results;
  for (size_t i = begin; i < end; ++i) {
    if (messages[i]->role != Role::kTool || !messages[i]->tool_call_id) continue;
    slots.push_back(i);
    results.push_back(messages[i]);
  }
  if (results.size() < 2) return;
  const auto rank = [&](const Message* message) {
    const auto found = position.find(*message->tool_call_id);
    return found == position.end() ? size_t{0} : found->second;
  };
  std::stable_sort(results.begin(), results.end(),
                   [&](const Message* a, const Message* b) { return rank(a) < rank(b); });
  for (size_t i = 0; i < slots.size(); ++i) messages[slots[i]] = results[i];
}

// Messages in rendering order. A reminder right after a reminder is dropped. (Neighbouring users need no merging here:
// the template writes the same blank line between them.)
MessageList ordered(const std::vector<Message>& source) {
  MessageList messages;
  for (const Message& message : source)
    if (message.role != Role::kLatestReminder || messages.empty() || messages.back()->role != Role::kLatestReminder)
      messages.push_back(&message);
  const std::vector<ToolCall>* calls = nullptr;
  for (size_t i = 0; i < messages.size();) {
    if (messages[i]->tool_calls && !messages[i]->tool_calls->empty()) calls = &*messages[i]->tool_calls;
    size_t end = i;
    while (end < messages.size() && is_turn_input(*messages[end])) ++end;
    if (calls && end > i) sort_results(messages, i, end, *calls);
    i = std::max(end, i + 1);
  }
  return messages;
}

class Template {
 public:
  Template(const Conversation& conversation, PromptWriter& out) : conversation_(conversation), out_(out) {}

  void write() {
    MessageList messages = ordered(conversation_.messages);
    const bool needs_system = conversation_.renders_tools() || renders_format(conversation_.response_format);
    static const Message kEmptySystem = [] {
      Message message;
      message.role = Role::kSystem;
      return message;
    }();
    if (needs_system && (messages.empty() || messages[0]->role != Role::kSystem))
      messages.insert(messages.begin(), &kEmptySystem);
    out_.control(Control::kBos);
    if (!messages.empty()) write_start(messages[0]->role == Role::kSystem);
    for (size_t i = 0; i < messages.size(); ++i) write_message(*messages[i], i, i > 0 ? messages[i - 1] : nullptr);
    if (messages.empty() || !messages.back()->prefix) write_generation_header();
    if (opens_block(conversation_)) write_block_start(out_, markup());
  }

 private:
  void write_start(bool begins_with_system) {
    const std::string effort = effort_text(conversation_, PromptVersion::kV41);
    if (!effort.empty() || begins_with_system) out_.control(Control::kSystem);
    out_.text(effort);
  }

  void write_generation_header() {
    out_.control(Control::kAssistant);
    out_.control(conversation_.thinking ? Control::kThinkStart : Control::kThinkEnd);
  }

  void write_message(const Message& message, size_t index, const Message* previous) {
    switch (message.role) {
      case Role::kSystem: write_system(message, index); return;
      case Role::kUser:
        write_turn_start(previous);
        out_.content(message.content);
        return;
      case Role::kTool:
        write_turn_start(previous);
        out_.text("<tool_result>");
        out_.content(message.content);
        out_.text("</tool_result>");
        return;
      case Role::kLatestReminder:
        out_.control(Control::kLatestReminder);
        out_.content(message.content);
        return;
      case Role::kAssistant: write_assistant(message, index);
    }
  }

  void write_turn_start(const Message* previous) {
    if (previous && is_turn_input(*previous)) out_.text("\n\n");
    else out_.control(Control::kUser);
  }

  void write_system(const Message& message, size_t index) {
    if (index > 0) out_.control(Control::kSystem);
    out_.content(message.content);
    if (index == 0) write_head();
    if (!message.tools || message.tools->empty()) return;
    std::string lines;
    for (const ToolDefinition& tool : *message.tools) {
      if (!lines.empty()) lines += '\n';
      append_tool_schema(lines, tool, markup());
    }
    out_.text("\n\n### Updated Tool Schemas\n\n");
    out_.text(lines);
  }

  // What the first system message says after its own text.
  void write_head() {
    if (conversation_.renders_tools()) {
      out_.text("\n\n");
      write_tools_text(out_, conversation_.tools, markup());
    }
    const ResponseFormat& format = conversation_.response_format;
    if (!renders_format(format)) return;
    out_.text("\n\n");
    out_.text(schema_format_text(format.kind == ResponseFormat::Kind::kJsonObject
                                     ? "{\"type\": \"json_object\"}"
                                     : spelled_json(format.schema, markup().json)));
  }

  // Old reasoning stays only where tools are rendered; a continued answer keeps its own.
  bool keeps_reasoning(const Message& message, size_t index) const {
    if (!conversation_.thinking) return false;
    // The only message, to be continued inside its reasoning: closing the reasoning here would contradict the parser.
    if (index == 0) return message.prefix && message.content.text.empty();
    return conversation_.renders_tools() || message.prefix;
  }

  void write_assistant(const Message& message, size_t index) {
    const bool has_calls = message.tool_calls && !message.tool_calls->empty();
    out_.control(Control::kAssistant);
    if (keeps_reasoning(message, index)) {
      out_.control(Control::kThinkStart);
      out_.model_text(message.reasoning.value_or(""));
      if (!message.prefix || !message.content.text.empty() || has_calls) out_.control(Control::kThinkEnd);
    } else {
      out_.control(Control::kThinkEnd);
    }
    out_.model_text(message.content.text);
    if (has_calls) write_tool_calls(out_, *message.tool_calls, markup());
    if (!message.prefix && !message.without_end) out_.control(Control::kEos);
  }

  const Conversation& conversation_;
  PromptWriter& out_;
};

}  // namespace

void write_v41_prompt(const Conversation& conversation, PromptWriter& out) { Template(conversation, out).write(); }

}  // namespace deepinfer
