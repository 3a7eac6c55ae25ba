// SPDX-License-Identifier: MIT
#include "grammar/tool_calls.h"

#include <fmt/format.h>

#include "base/utf8.h"
#include "chat/tool_markup.h"
#include "grammar/schema_lowering.h"

namespace deepinfer {
namespace {

using Kind = GrammarNode::Kind;

Status refuse(const std::string& parameter, const char* why) {
  return unimplemented(fmt::format("properties at #: the parameter \"{}\" {}", parameter, why));
}

class ToolCalls {
 public:
  ToolCalls(GrammarProgram& program, const ToolCallGrammar& grammar)
      : program_(program), grammar_(grammar), markup_(tool_markup(grammar.version)) {
    dsml_ = program.add_tokens({grammar.dsml});
  }

  Result<NodeId> block() {
    ASSIGN_OR_RETURN(const NodeId rest, block_rest());
    return sequence({text("<"), dsml_, text(std::string(markup_.block) + ">\n"), rest});
  }

  Result<NodeId> block_rest() {
    std::vector<NodeId> calls;
    for (const ToolDefinition& tool : grammar_.tools) {
      auto call = call_of(tool);
      if (!call.ok()) return call.status().prefixed(fmt::format("tool \"{}\"", tool.name));
      calls.push_back(call.value());
    }
    // The tag's start is shared, so a choice among many tools begins at their names.
    const NodeId call = sequence({text("<"), dsml_, text(std::string(markup_.call) + " name=\""),
                                  program_.add_list(Kind::kChoice, calls), end_tag(markup_.call)});
    const NodeId all = grammar_.one_call ? call : program_.add({Kind::kRepeat, call, 1, RegexPool::kInfinite});
    return sequence({all, text("</"), dsml_, text(std::string(markup_.block) + ">")});
  }

 private:
  NodeId text(std::string_view text) {
    std::u32string points;
    while (!text.empty()) {
      const CodePoint c = decode_utf8(text);
      points.push_back(c.value);
      text.remove_prefix(c.num_bytes);
    }
    return program_.add_raw(program_.regexes.text(points));
  }
  NodeId sequence(const std::vector<NodeId>& parts) { return program_.add_list(Kind::kSequence, parts); }
  NodeId optional(NodeId node) { return program_.add({Kind::kRepeat, node, 0, 1}); }
  NodeId end_tag(std::string_view name) { return sequence({text("</"), dsml_, text(std::string(name) + ">\n")}); }

  // From the tool's name to the line before the closing tag.
  Result<NodeId> call_of(const ToolDefinition& tool) {
    std::vector<NodeId> parts{text(tool.name + "\">\n")};
    if (tool.strict.value_or(false)) TRY(add_strict(tool.parameters, parts));
    else parts.push_back(any_parameters());
    if (parts.size() == 1) parts.push_back(optional(text("\n")));
    return sequence(parts);
  }

  Status add_strict(const Json& schema, std::vector<NodeId>& parts) {
    ASSIGN_OR_RETURN(SchemaDocument document, SchemaDocument::open(schema));
    SchemaReader reader(std::move(document), program_.regexes, false);
    SchemaLowering lowering(program_, reader, PropertyOrder::kSchema, true);
    const Json* properties = schema.find("properties");
    if (properties == nullptr || !properties->is_object()) return {};
    std::vector<TermId> terms;
    for (const auto& [name, property] : properties->as_object()) terms.push_back(reader.terms().schema(property));
    ASSIGN_OR_RETURN(const std::vector<SchemaLowering::SplitValue> values, lowering.lower_split(terms));
    for (size_t i = 0; i < values.size(); ++i) {
      const std::string& name = properties->as_object()[i].first;
      // Names are written as they are: the quote that ends one must be the first.
      if (name.find_first_of("\"\n\r") != std::string::npos) return refuse(name, "cannot be written as a tag's name");
      ASSIGN_OR_RETURN(const NodeId parameter, parameter_of(name, values[i]));
      parts.push_back(parameter);
    }
    return {};
  }

  Result<NodeId> parameter_of(const std::string& name, const SchemaLowering::SplitValue& value) {
    std::vector<NodeId> ways;
    if (value.string != RegexPool::kNone) ways.push_back(sequence({text("true\">"), program_.add_raw(value.string)}));
    if (value.has_others) ways.push_back(sequence({text("false\">"), value.others}));
    if (ways.empty()) return refuse(name, "has no valid value");
    return sequence({parameter_start(), text(name + "\" string=\""), program_.add_list(Kind::kChoice, ways),
                     end_tag(markup_.parameter)});
  }

  NodeId parameter_start() { return sequence({text("<"), dsml_, text(std::string(markup_.parameter) + " name=\"")}); }

  // Any names and values; a call without parameters has an empty line.
  NodeId any_parameters() {
    if (any_parameters_ != 0) return any_parameters_;
    CharSet name_chars = CharSet::range(0, 0x20);
    name_chars.add('"', '"' + 1);
    RegexPool& pool = program_.regexes;
    const NodeId name = program_.add_raw(pool.repeat(pool.chars(name_chars.complement()), 1, 256));
    const Json every(true);
    const NodeId json = add_json_schema(program_, every, {}).value();
    const NodeId value = program_.add_list(
        Kind::kChoice,
        {sequence({text("true\">"), program_.add_raw(RegexPool::kAny)}), sequence({text("false\">"), json})});
    const NodeId parameter =
        sequence({parameter_start(), name, text("\" string=\""), value, end_tag(markup_.parameter)});
    any_parameters_ = program_.add_list(
        Kind::kChoice, {optional(text("\n")), program_.add({Kind::kRepeat, parameter, 1, RegexPool::kInfinite})});
    return any_parameters_;
  }

  GrammarProgram& program_;
  const ToolCallGrammar& grammar_;
  const ToolMarkup& markup_;
  NodeId dsml_ = 0, any_parameters_ = 0;
};

}  // namespace

Result<NodeId> add_tool_block(GrammarProgram& program, const ToolCallGrammar& grammar) {
  return ToolCalls(program, grammar).block();
}

Result<NodeId> add_tool_block_rest(GrammarProgram& program, const ToolCallGrammar& grammar) {
  return ToolCalls(program, grammar).block_rest();
}

}  // namespace deepinfer
