// SPDX-License-Identifier: MIT
// --schema, --regex and --ebnf of `deepinfer generate`: what the answer must be, on the command line.
#pragma once

#include <memory>
#include <string>

#include "chat/chat_request.h"
#include "grammar/grammar.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

class OptionSet;

struct AnswerConstraint {
  std::string schema, regex, ebnf;  // file, text, file
};

void declare_constraint_options(OptionSet& options, AnswerConstraint& constraint);
// Puts them into the request, where they win over a response format. Errors: invalid_argument for more than one, those
// of files.
Status apply_constraint(const AnswerConstraint& constraint, ChatRequest& request);
// The same as the value of a body's "structured_outputs"; null when nothing is asked.
Result<Json> constraint_member(const AnswerConstraint& constraint);
// The grammar of what the request asks of its answer; null when nothing is asked.
Result<std::shared_ptr<Grammar>> compile_constraint(const ChatRequest& request,
                                                    const std::shared_ptr<const Tokenizer>& tokenizer);

}  // namespace deepinfer
