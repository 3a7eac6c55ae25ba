// SPDX-License-Identifier: MIT
// The V4 template: system messages stand together at the front, calls and results are sorted by call id, quick tasks
// end a user turn with a control token.
#include <algorithm>
#include <string>
#include <vector>

#include "chat/prompt_versions.h"

namespace deepinfer {

namespace {

const ToolMarkup& markup() { return tool_markup(PromptVersion::kV4); }

bool is_empty(const MessageContent& content) { return content.text.empty() && content.image_offsets.empty(); }

// A message as rendered: neighbouring users are one turn.
struct Turn {
  std::vector<const Message*> parts;
  Role role() const { return parts[0]->role; }
  const Message& message() const { return *parts.back(); }
};

std::vector<Turn> merged(const std::vector<Message>& messages) {
  std::vector<Turn> turns;
  for (const Message& message : messages) {
    if (message.role == Role::kSystem) continue;
    const bool joins = message.role == Role::kUser && !turns.empty() && turns.back().role() == Role::kUser &&
                       turns.back().message().task == QuickTask::kNone;
    if (joins) turns.back().parts.push_back(&message);
    else turns.push_back({{&message}});
  }
  return turns;
}

// The messages after an assistant with n calls: results by call id, then the others as they came.
void sort_results(std::vector<Turn>& turns) {
  const auto before = [](const Turn& a, const Turn& b) {
    const bool a_is_tool = a.role() == Role::kTool, b_is_tool = b.role() == Role::kTool;
    if (a_is_tool != b_is_tool) return a_is_tool;
    return a_is_tool && a.message().tool_call_id < b.message().tool_call_id;  // an absent id comes first
  };
  for (size_t i = 0; i < turns.size(); ++i) {
    const auto& calls = turns[i].message().tool_calls;
    if (!calls || turns.size() - i - 1 < calls->size()) continue;
    const auto begin = turns.begin() + static_cast<std::ptrdiff_t>(i + 1);
    std::stable_sort(begin, begin + static_cast<std::ptrdiff_t>(calls->size()), before);
  }
}

Control task_control(QuickTask task) {
  switch (task) {
    case QuickTask::kNone:
    case QuickTask::kAction: return Control::kAction;
    case QuickTask::kQuery: return Control::kQuery;
    case QuickTask::kAuthority: return Control::kAuthority;
    case QuickTask::kDomain: return Control::kDomain;
    case QuickTask::kTitle: return Control::kTitle;
    case QuickTask::kReadUrl: return Control::kReadUrl;
  }
  return Control::kAction;
}

class Template {
 public:
  Template(const Conversation& conversation, PromptWriter& out) : conversation_(conversation), out_(out) {}

  void write(V4Effort effort) {
    std::vector<Turn> turns = merged(conversation_.messages);
    sort_results(turns);
    out_.control(Control::kBos);
    out_.text(effort_text(conversation_, PromptVersion::kV4, effort));
    write_systems();
    for (size_t i = 0; i < turns.size(); ++i)
      write_turn(turns[i], i > 0 ? &turns[i - 1] : nullptr, i + 1 < turns.size() ? &turns[i + 1] : nullptr);
    const bool continues =
        !turns.empty() && (turns.back().message().prefix || turns.back().message().task != QuickTask::kNone);
    if (!continues) write_generation_header();
    if (opens_block(conversation_)) write_block_start(out_, markup());
  }

 private:
  void write_generation_header() {
    out_.control(Control::kAssistant);
    out_.control(conversation_.thinking ? Control::kThinkStart : Control::kThinkEnd);
  }

  // All system texts in order, then the tools text and the format text as further ones.
  void write_systems() {
    bool first = true;
    const auto separate = [&] {
      if (!first) out_.text("\n\n");
      first = false;
    };
    for (const Message& message : conversation_.messages) {
      if (message.role != Role::kSystem || is_empty(message.content)) continue;
      separate();
      out_.content(message.content);
    }
    const ResponseFormat& format = conversation_.response_format;
    const bool tools = conversation_.renders_tools(), tells_format = renders_format(format);
    if (tools || tells_format) first = false;  // without a leading system message an empty one stands here
    if (tools) {
      separate();
      write_tools_text(out_, conversation_.tools, markup());
    }
    if (!tells_format) return;
    separate();
    if (format.kind == ResponseFormat::Kind::kJsonObject)
      out_.text(
          "You are a helpful assistant designed to output JSON.\n## Response Format:\n\nReply with JSON object ONLY.");
    else out_.text(schema_format_text(spelled_json(format.schema, markup().json)));
  }

  void write_turn(const Turn& turn, const Turn* previous, const Turn* next) {
    const bool after_tool = previous && previous->role() == Role::kTool;
    const bool after_input = after_tool || (previous && previous->role() == Role::kUser);
    switch (turn.role()) {
      case Role::kSystem: return;
      case Role::kUser:
        if (after_input) out_.text("\n\n");
        else out_.control(Control::kUser);
        write_user(turn);
        write_task(turn.message().task, next);
        return;
      case Role::kTool:
        if (after_tool) out_.text("\n\n");
        else out_.control(Control::kUser);
        out_.text("<tool_result>");
        out_.content(turn.message().content);
        out_.text("</tool_result>");
        return;
      case Role::kLatestReminder:
        out_.control(Control::kLatestReminder);
        out_.content(turn.message().content);
        return;
      case Role::kAssistant:
        write_assistant(turn.message(), previous && previous->message().task != QuickTask::kNone, !next);
    }
  }

  void write_user(const Turn& turn) {
    bool written = false;
    for (const Message* part : turn.parts) {
      if (written && !is_empty(part->content)) out_.text("\n\n");
      out_.content(part->content);
      written = written || !is_empty(part->content);
    }
  }

  void write_task(QuickTask task, const Turn* next) {
    if (task == QuickTask::kNone) return;
    if (next && next->role() != Role::kAssistant && next->role() != Role::kLatestReminder) return;
    if (task == QuickTask::kAction) write_generation_header();
    out_.control(task_control(task));
  }

  void write_assistant(const Message& message, bool answers_task, bool is_last) {
    const bool continued = is_last && message.prefix;
    if (!answers_task) {
      out_.control(Control::kAssistant);
      if (message.reasoning && (conversation_.renders_tools() || message.prefix)) {
        out_.control(Control::kThinkStart);
        out_.model_text(*message.reasoning);
      }
      if (!(conversation_.thinking && message.prefix && message.content.text.empty())) out_.control(Control::kThinkEnd);
    }
    out_.model_text(message.content.text);
    if (message.tool_calls) write_calls(*message.tool_calls);
    if (!continued && !message.without_end) out_.control(Control::kEos);
  }

  void write_calls(std::vector<ToolCall> calls) {
    std::stable_sort(calls.begin(), calls.end(), [](const ToolCall& a, const ToolCall& b) { return a.id < b.id; });
    write_tool_calls(out_, calls, markup());
  }

  const Conversation& conversation_;
  PromptWriter& out_;
};

}  // namespace

void write_v4_prompt(const Conversation& conversation, V4Effort effort, PromptWriter& out) {
  Template(conversation, out).write(effort);
}

}  // namespace deepinfer
