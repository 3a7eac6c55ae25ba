// SPDX-License-Identifier: MIT
// Tool calls in DSML as a grammar: a block of calls, each with the name of a declared tool and its parameters, string
// values as they are, others as JSON. Tags begin at the DSML control token, so a value may spell anything. Source:
// chat.md 2.6, 4.2.
#pragma once

#include <vector>

#include "chat/chat_request.h"
#include "grammar/json_schema.h"
#include "grammar/machine.h"

namespace deepinfer {

struct ToolCallGrammar {
  std::vector<ToolDefinition> tools;
  PromptVersion version = PromptVersion::kV41;
  TokenId dsml = -1;
  bool one_call = false;  // no second call in the block
};

// The block from `<` before its first DSML token to the `>` of its closing tag. Strict tools get exactly the values of
// their schema, which must be in closed form (chat/strict_schema.h), in its order. Other tools may get any parameters.
// Errors: those of add_json_schema, with the tool's name.
Result<NodeId> add_tool_block(GrammarProgram& program, const ToolCallGrammar& grammar);
// The same behind an opening tag that the prompt holds.
Result<NodeId> add_tool_block_rest(GrammarProgram& program, const ToolCallGrammar& grammar);

}  // namespace deepinfer
