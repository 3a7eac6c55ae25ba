// SPDX-License-Identifier: MIT
#include "grammar/answer_grammar.h"

namespace deepinfer {
namespace {

using Kind = GrammarNode::Kind;

void append_part(std::string& key, std::string_view part) {
  key += std::to_string(part.size());
  key += ':';
  key += part;
}

class AnswerBuilder {
 public:
  AnswerBuilder(GrammarProgram& program, const AnswerSpec& spec, const AnswerTokens& tokens,
                const GrammarOptions& options)
      : program_(program), spec_(spec), tokens_(tokens), options_(options) {}

  Result<NodeId> build() {
    ASSIGN_OR_RETURN(const NodeId answer, after_reasoning());
    if (!spec_.starts_in_reasoning) return answer;
    const NodeId closed = sequence({program_.add_tokens({tokens_.think_end}), answer});
    // A block of calls may also follow the reasoning directly: the stream parser reads it so.
    std::vector<NodeId> ways{closed};
    if (!spec_.tools.empty()) ways.push_back(block_);
    const NodeId rest = program_.add_list(Kind::kChoice, ways);
    const bool may_stay_empty = !spec_.content && !spec_.requires_call;
    return sequence({free_text(), may_stay_empty ? optional(rest) : rest});
  }

 private:
  Result<NodeId> after_reasoning() {
    if (spec_.tools.empty()) return content();
    const ToolCallGrammar calls{spec_.tools, spec_.version, tokens_.dsml, spec_.one_call};
    if (spec_.starts_in_calls) return add_tool_block_rest(program_, calls);
    ASSIGN_OR_RETURN(block_, add_tool_block(program_, calls));
    const NodeId lines = program_.add_raw(program_.regexes.repeat(
        program_.regexes.chars(CharSet::of('\n')), 0, 2));  // what the prompt's template puts before a block
    const NodeId call = sequence({lines, block_});
    if (spec_.requires_call) return call;
    ASSIGN_OR_RETURN(const NodeId text, content());
    if (!spec_.content) return sequence({text, optional(block_)});
    return program_.add_list(Kind::kChoice, {text, call});
  }

  Result<NodeId> content() {
    if (!spec_.content) return free_text();
    return add_grammar_source(program_, *spec_.content, options_);
  }

  NodeId free_text() {
    if (tokens_.in_text.empty()) return program_.add_raw(RegexPool::kAny);
    const NodeId text = program_.add_raw(program_.regexes.repeat(program_.regexes.chars(CharSet::all()), 1, kEndless));
    const NodeId part = program_.add_list(Kind::kChoice, {text, program_.add_tokens(tokens_.in_text)});
    return program_.add({Kind::kRepeat, part, 0, kEndless});
  }

  NodeId sequence(const std::vector<NodeId>& parts) { return program_.add_list(Kind::kSequence, parts); }
  NodeId optional(NodeId node) { return program_.add({Kind::kRepeat, node, 0, 1}); }

  static constexpr uint32_t kEndless = RegexPool::kInfinite;
  GrammarProgram& program_;
  const AnswerSpec& spec_;
  const AnswerTokens& tokens_;
  const GrammarOptions& options_;
  NodeId block_ = 0;
};

}  // namespace

AnswerTokens AnswerTokens::of(const ControlTokens& controls) {
  AnswerTokens tokens;
  tokens.end = controls.id(Control::kEos);
  tokens.think_end = controls.id(Control::kThinkEnd);
  tokens.dsml = controls.id(Control::kDsml);
  for (const Control control : {Control::kRef, Control::kRefEnd, Control::kBox, Control::kBoxEnd, Control::kPoint,
                                Control::kPointEnd, Control::kPolygon, Control::kPolygonEnd})
    if (controls.id(control) >= 0) tokens.in_text.push_back(controls.id(control));
  return tokens;
}

namespace {

Result<GrammarSource> source_of(const OutputConstraint& constraint) {
  GrammarSource source;
  source.text = constraint.schema;
  switch (constraint.kind) {
    case OutputConstraint::Kind::kRegex: source.kind = GrammarSource::Kind::kRegex; return source;
    case OutputConstraint::Kind::kEbnf: source.kind = GrammarSource::Kind::kEbnf; return source;
    case OutputConstraint::Kind::kJson:
      source.kind = GrammarSource::Kind::kJsonSchema;
      if (source.text.empty()) source.text = R"({"type":"object"})";
      return source;
    case OutputConstraint::Kind::kChoice: {
      ASSIGN_OR_RETURN(const Json list, parse_json(constraint.schema));
      if (!list.is_array()) return invalid_argument("choice: expected a list of texts");
      source = {GrammarSource::Kind::kChoice, "", {}};
      for (const Json& text : list.as_array()) {
        if (!text.is_string()) return invalid_argument("choice: expected a list of texts");
        source.choices.push_back(text.as_string());
      }
      return source;
    }
    default: return internal_error("tools are no content");
  }
}

}  // namespace

Result<AnswerSpec> AnswerSpec::of(const ChatRequest& chat) {
  using Kind = OutputConstraint::Kind;
  AnswerSpec spec;
  spec.version = chat.version;
  const InferenceOptions& inference = chat.inference;
  if (!inference.constraint) return spec;
  const bool has_tools =
      inference.constraint->kind == Kind::kToolCall || inference.constraint->kind == Kind::kToolCallRequired;
  if (has_tools) {
    spec.tools = chat.conversation.tools;
    spec.requires_call = inference.constraint->kind == Kind::kToolCallRequired;
    spec.starts_in_calls = chat.parsing.starts_in_tool_calls;
    spec.one_call = inference.one_call;
  }
  const auto& content = has_tools ? inference.content_constraint : inference.constraint;
  if (content && !spec.requires_call) { ASSIGN_OR_RETURN(spec.content, source_of(*content)); }
  const auto stage = chat.parsing.thinking_stage;
  spec.starts_in_reasoning = stage == ThinkingStage::kReasoningStart || stage == ThinkingStage::kReasoningContinuation;
  return spec;
}

std::string AnswerSpec::key() const {
  std::string key = {version == PromptVersion::kV4 ? '4' : '5', requires_call ? 'r' : '-', starts_in_calls ? 'c' : '-',
                     starts_in_reasoning ? 't' : '-', one_call ? '1' : '-'};
  if (content) {
    key += static_cast<char>('A' + static_cast<int>(content->kind));
    append_part(key, content->text);
    for (const std::string& choice : content->choices) append_part(key, choice);
  }
  for (const ToolDefinition& tool : tools) {
    key += tool.strict.value_or(false) ? 's' : 'l';
    append_part(key, tool.name);
    if (tool.strict.value_or(false)) append_part(key, to_json(tool.parameters));
  }
  return key;
}

Result<std::shared_ptr<Grammar>> compile_answer(const AnswerSpec& spec, const AnswerTokens& tokens,
                                                std::shared_ptr<const TokenIndex> index, GrammarOptions options) {
  options.end_ids = {tokens.end};
  options.digits_only = true;
  return Grammar::compile(
      [&](GrammarProgram& program) { return AnswerBuilder(program, spec, tokens, options).build(); }, std::move(index),
      options);
}

}  // namespace deepinfer
