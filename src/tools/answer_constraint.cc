// SPDX-License-Identifier: MIT
#include "tools/answer_constraint.h"

#include "base/file.h"
#include "chat/output_vocabulary.h"
#include "grammar/answer_grammar.h"
#include "tools/command.h"

namespace deepinfer {

void declare_constraint_options(OptionSet& options, AnswerConstraint& constraint) {
  options.add("--schema", constraint.schema, "file with a JSON Schema: the answer is JSON that satisfies it");
  options.add("--regex", constraint.regex, "regular expression that the whole answer matches");
  options.add("--ebnf", constraint.ebnf, "file with rules (GBNF) that the answer follows from `root` on");
}

namespace {

// Errors: invalid_argument for more than one, those of files.
Result<std::optional<OutputConstraint>> asked_constraint(const AnswerConstraint& constraint) {
  using Kind = OutputConstraint::Kind;
  const int given = !constraint.schema.empty() + !constraint.regex.empty() + !constraint.ebnf.empty();
  if (given == 0) return std::optional<OutputConstraint>();
  if (given > 1) return invalid_argument("expected at most one of --schema, --regex and --ebnf");
  if (!constraint.regex.empty()) return std::optional(OutputConstraint{Kind::kRegex, constraint.regex, "--regex"});
  const bool is_schema = !constraint.schema.empty();
  ASSIGN_OR_RETURN(std::string text, read_file(is_schema ? constraint.schema : constraint.ebnf));
  return std::optional(
      OutputConstraint{is_schema ? Kind::kJson : Kind::kEbnf, std::move(text), is_schema ? "--schema" : "--ebnf"});
}

}  // namespace

Status apply_constraint(const AnswerConstraint& constraint, ChatRequest& request) {
  ASSIGN_OR_RETURN(std::optional<OutputConstraint> asked, asked_constraint(constraint));
  if (!asked) return {};
  const bool has_tools = request.conversation.renders_tools();
  (has_tools ? request.inference.content_constraint : request.inference.constraint) = std::move(asked);
  return {};
}

Result<Json> constraint_member(const AnswerConstraint& constraint) {
  ASSIGN_OR_RETURN(const std::optional<OutputConstraint> asked, asked_constraint(constraint));
  if (!asked) return Json();
  const char* name = asked->kind == OutputConstraint::Kind::kJson    ? "json"
                     : asked->kind == OutputConstraint::Kind::kRegex ? "regex"
                                                                     : "grammar";
  return Json(Json::Object{{name, asked->schema}});
}

Result<std::shared_ptr<Grammar>> compile_constraint(const ChatRequest& request,
                                                    const std::shared_ptr<const Tokenizer>& tokenizer) {
  ASSIGN_OR_RETURN(const AnswerSpec spec, AnswerSpec::of(request));
  if (spec.is_free()) return std::shared_ptr<Grammar>();
  ASSIGN_OR_RETURN(const OutputVocabulary vocabulary, OutputVocabulary::create(tokenizer));
  auto grammar =
      compile_answer(spec, AnswerTokens::of(vocabulary.controls), std::make_shared<const TokenIndex>(tokenizer), {});
  if (!grammar.ok()) return grammar.status().prefixed(request.inference.constraint->path);
  if ((*grammar)->is_empty()) return invalid_argument("no answer satisfies " + request.inference.constraint->path);
  return grammar;
}

}  // namespace deepinfer
