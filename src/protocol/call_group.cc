// SPDX-License-Identifier: MIT
#include "protocol/call_group.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace deepinfer {

Refusal CallGroup::check_id(const std::string& id, size_t item_idx) {
  if (!id.empty()) return {};
  const std::string path = fmt::format("input[{}].call_id", item_idx);
  return refuse(
      fmt::format(
          "Invalid '{}': empty string. Expected a string with minimum length 1, but got an empty string instead.",
          path),
      path);
}

Refusal CallGroup::add_call(ToolCall call, size_t item_idx) {
  REFUSE_IF(check_id(call.id, item_idx));
  if (!all_calls_.insert(call.id).second)
    return refuse(fmt::format("Duplicate 'call_id': {}.", call.id), fmt::format("input[{}].call_id", item_idx));
  if (outputs_.size() == calls_.size()) write();  // a call after a complete group begins the next turn
  calls_.push_back(std::move(call));
  return {};
}

Refusal CallGroup::check_output(const std::string& id, size_t item_idx) const {
  REFUSE_IF(check_id(id, item_idx));
  const std::string path = fmt::format("input[{}].call_id", item_idx);
  if (!all_calls_.contains(id) && !has_earlier_turns_)
    return refuse(fmt::format("No tool call found for tool output with call_id {}.", id), path);
  return all_outputs_.contains(id) ? refuse(fmt::format("Duplicate tool output for call_id: {}.", id), path)
                                   : Refusal();
}

Refusal CallGroup::add_output(std::string id, MessageContent content) {
  all_outputs_.insert(id);
  if (all_calls_.contains(id)) {
    outputs_[id].content = std::move(content);
    latest_output_ = std::move(id);
    return {};
  }
  REFUSE_IF(close());  // it answers a call of an earlier response
  Message& message = messages_.emplace_back();
  message.role = Role::kTool;
  message.tool_call_id = std::move(id);
  message.content = std::move(content);
  return {};
}

void CallGroup::add_found_tools(std::vector<ToolDefinition> tools) {
  if (!tools.empty()) found_.push_back(std::move(tools));
}

void CallGroup::add_note(MessageContent note) { outputs_[latest_output_].notes.push_back(std::move(note)); }

Refusal CallGroup::close() {
  for (const ToolCall& call : calls_)
    if (!outputs_.contains(call.id))
      return refuse(fmt::format("No tool output found for tool call {}.", call.id), "input");
  write();
  return {};
}

void CallGroup::write() {
  if (calls_.empty()) return;
  if (messages_.empty() || messages_.back().role != Role::kAssistant) messages_.emplace_back().role = Role::kAssistant;
  std::sort(calls_.begin(), calls_.end(), [](const ToolCall& a, const ToolCall& b) { return a.id < b.id; });
  messages_.back().tool_calls = std::exchange(calls_, {});
  for (auto& [id, output] : outputs_) {
    Message& result = messages_.emplace_back();
    result.role = Role::kTool;
    result.tool_call_id = id;
    result.content = std::move(output.content);
    for (MessageContent& note : output.notes) {
      messages_.emplace_back().role = Role::kSystem;
      messages_.back().content = std::move(note);
    }
  }
  outputs_.clear();
  latest_output_.clear();
  for (std::vector<ToolDefinition>& tools : std::exchange(found_, {})) {
    messages_.emplace_back().role = Role::kSystem;
    messages_.back().tools = std::move(tools);
  }
}

}  // namespace deepinfer
