// SPDX-License-Identifier: MIT
// Calls of the Responses history and their outputs, which may come in any order: collected until every call is
// answered, then written as one assistant turn and its results, both in call-id order. Source: chat.md 3.3.
#pragma once

#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "chat/chat_request.h"
#include "protocol/request_error.h"

namespace deepinfer {

class CallGroup {
 public:
  // `messages` is the conversation that complete groups are appended to. `has_earlier_turns`: outputs may answer calls
  // of a response that the server will put before these messages.
  CallGroup(std::vector<Message>& messages, bool has_earlier_turns)
      : messages_(messages), has_earlier_turns_(has_earlier_turns) {}

  Refusal add_call(ToolCall call, size_t item_idx);
  // Whether an output of that id may come now; then add_output takes it.
  Refusal check_output(const std::string& id, size_t item_idx) const;
  Refusal add_output(std::string id, MessageContent content);
  // Tools that an output declared: told in a system message of their own after the group's results.
  void add_found_tools(std::vector<ToolDefinition> tools);
  // A developer's note about the output just added; it follows that output and does not close the group.
  void add_note(MessageContent note);
  bool has_calls() const { return !calls_.empty(); }

  // Something else follows: writes the group, or refuses when a call is still open.
  Refusal close();

 private:
  struct Output {
    MessageContent content;
    std::vector<MessageContent> notes;
  };
  void write();
  static Refusal check_id(const std::string& id, size_t item_idx);

  std::vector<Message>& messages_;
  const bool has_earlier_turns_;
  std::vector<ToolCall> calls_;
  std::map<std::string, Output> outputs_;
  std::vector<std::vector<ToolDefinition>> found_;
  std::string latest_output_;
  std::unordered_set<std::string> all_calls_, all_outputs_;
};

}  // namespace deepinfer
