// SPDX-License-Identifier: MIT
// A whole answer as one grammar: reasoning up to the id of </think>, then text, a format, or tool calls. One matcher
// thus goes through all of it, drafts and rollback included; nothing is switched on at a text that could be quoted.
// Control tokens stand in nodes of their own and nowhere else. Source: chat.md 4, serving.md 7.6.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat/control_tokens.h"
#include "grammar/grammar.h"
#include "grammar/tool_calls.h"

namespace deepinfer {

// Control tokens of the loaded tokenizer that an answer may hold.
struct AnswerTokens {
  TokenId end = -1, think_end = -1, dsml = -1;
  std::vector<TokenId> in_text;  // grounding: visible, anywhere in free text

  static AnswerTokens of(const ControlTokens& controls);
};

struct AnswerSpec {
  std::optional<GrammarSource> content;  // absent: free text
  std::vector<ToolDefinition> tools;     // empty: no calls
  PromptVersion version = PromptVersion::kV41;
  bool requires_call = false;
  bool starts_in_calls = false;      // the prompt has opened the block of calls; reasoning is over
  bool starts_in_reasoning = false;  // the prompt has opened the reasoning
  bool one_call = false;             // no second call

  // What a request asks of its answer. Errors: invalid_argument for a constraint that cannot be read.
  static Result<AnswerSpec> of(const ChatRequest& chat);
  // Nothing is asked.
  bool is_free() const { return !content && tools.empty(); }
  // Equal specs have equal keys.
  std::string key() const;
};

// `options.end_ids` is replaced by the tokenizer's; integers are digits. Errors: those of the front ends; a tool's
// error names the tool.
Result<std::shared_ptr<Grammar>> compile_answer(const AnswerSpec& spec, const AnswerTokens& tokens,
                                                std::shared_ptr<const TokenIndex> index, GrammarOptions options);

}  // namespace deepinfer
