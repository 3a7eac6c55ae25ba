// SPDX-License-Identifier: MIT
#include "grammar/ebnf.h"

#include <algorithm>
#include <optional>

#include "grammar/ebnf_tree.h"

namespace deepinfer {
namespace {

using Kind = EbnfTree::Kind;

// Rules to nodes. What needs no recursion becomes one lexeme.
class EbnfLowering {
 public:
  EbnfLowering(GrammarProgram& program, const EbnfRules& rules)
      : program_(program), rules_(rules), nodes_(rules.bodies.size(), 0), regular_(rules.bodies.size(), -1) {}

  NodeId lower() {
    for (size_t i = 0; i < rules_.bodies.size(); ++i) is_regular(i);
    for (NodeId& node : nodes_) node = program_.add({GrammarNode::Kind::kChoice, 0, 0, 0});
    for (size_t i = 0; i < rules_.bodies.size(); ++i)
      program_.set_list(nodes_[i], GrammarNode::Kind::kChoice, {node_of(rules_.bodies[i])});
    for (const auto& [rule, absorbed] : rules_.absorbed) program_.set_absorbed(nodes_[rule], nodes_[absorbed]);
    return nodes_[rules_.root];
  }

 private:
  bool is_regular(size_t rule) {
    if (regular_[rule] < 0) {
      regular_[rule] = 0;  // while open: a rule that reaches itself is not
      const bool result = is_regular(rules_.bodies[rule]);
      regular_[rule] = result ? 1 : 0;
    }
    return regular_[rule] == 1;
  }
  bool is_regular(const EbnfNode& node) {
    if (node->kind == Kind::kRule) return is_regular(node->rule);
    return std::ranges::all_of(node->parts, [this](const EbnfNode& part) { return is_regular(part); });
  }

  RegexId regex_of(const EbnfNode& node) {
    RegexPool& pool = program_.regexes;
    switch (node->kind) {
      case Kind::kText: return pool.text(node->text);
      case Kind::kChars: return pool.chars(node->chars);
      case Kind::kRule: {
        const auto known = regexes_.find(node->rule);
        if (known != regexes_.end()) return known->second;
        const RegexId id = regex_of(rules_.bodies[node->rule]);
        regexes_[node->rule] = id;
        return id;
      }
      case Kind::kRepeat: return pool.repeat(regex_of(node->parts[0]), node->min, node->max);
      case Kind::kSequence: {
        RegexId result = RegexPool::kEmpty;
        for (size_t i = node->parts.size(); i-- > 0;) result = pool.concat(regex_of(node->parts[i]), result);
        return result;
      }
      case Kind::kEither: {
        std::vector<RegexId> parts;
        for (const EbnfNode& part : node->parts) parts.push_back(regex_of(part));
        return pool.either(std::move(parts));
      }
    }
    return RegexPool::kNone;
  }

  NodeId node_of(const EbnfNode& node) {
    if (is_regular(node)) return program_.add_raw(regex_of(node));
    switch (node->kind) {
      case Kind::kRule: return nodes_[node->rule];
      case Kind::kRepeat:
        return program_.add({GrammarNode::Kind::kRepeat, node_of(node->parts[0]), node->min, node->max});
      case Kind::kSequence: return program_.add_list(GrammarNode::Kind::kSequence, sequence_of(node->parts));
      default: {
        std::vector<NodeId> parts;
        for (const EbnfNode& part : node->parts) parts.push_back(node_of(part));
        return program_.add_list(GrammarNode::Kind::kChoice, parts);
      }
    }
  }

  // Neighbours that need no recursion are one lexeme.
  std::vector<NodeId> sequence_of(const std::vector<EbnfNode>& parts) {
    std::vector<NodeId> nodes;
    std::vector<EbnfNode> run;
    const auto flush = [&] {
      if (!run.empty()) nodes.push_back(program_.add_raw(regex_of(ebnf::sequence(run))));
      run.clear();
    };
    for (const EbnfNode& part : parts) {
      if (is_regular(part)) {
        run.push_back(part);
        continue;
      }
      flush();
      nodes.push_back(node_of(part));
    }
    flush();
    return nodes;
  }

  GrammarProgram& program_;
  const EbnfRules& rules_;
  std::vector<NodeId> nodes_;
  std::vector<int> regular_;
  std::map<size_t, RegexId> regexes_;
};

// Rules without any finite text would leave a reader stuck; their alternatives go.
void drop_endless(GrammarProgram& program, NodeId first) {
  std::vector<bool> ends(program.nodes.size(), false);
  for (bool changed = true; changed;) {
    changed = false;
    for (NodeId id = static_cast<NodeId>(program.nodes.size()); id-- > first;) {
      if (ends[id]) continue;
      const GrammarNode& node = program.nodes[id];
      const auto begin = program.children.begin() + node.a, end = program.children.begin() + node.b;
      const auto ends_too = [&](NodeId child) { return ends[child]; };
      bool now = true;
      if (node.kind == GrammarNode::Kind::kRaw) now = node.a != RegexPool::kNone;
      if (node.kind == GrammarNode::Kind::kSequence) now = std::all_of(begin, end, ends_too);
      if (node.kind == GrammarNode::Kind::kChoice) now = std::any_of(begin, end, ends_too);
      if (node.kind == GrammarNode::Kind::kRepeat) now = node.b == 0 || ends[node.a];
      if (now) changed = ends[id] = true;
    }
  }
  for (NodeId id = first; id < program.nodes.size(); ++id) {
    GrammarNode& node = program.nodes[id];
    if (node.kind == GrammarNode::Kind::kRepeat && !ends[node.a]) node.c = 0;
    if (node.kind != GrammarNode::Kind::kChoice) continue;
    std::vector<NodeId> ways;
    for (uint32_t i = node.a; i < node.b; ++i)
      if (ends[program.children[i]]) ways.push_back(program.children[i]);
    if (ways.size() < node.b - node.a) program.set_list(id, GrammarNode::Kind::kChoice, ways);
  }
}

}  // namespace

Result<NodeId> add_ebnf(GrammarProgram& program, std::string_view text, const EbnfLimits& limits) {
  ASSIGN_OR_RETURN(EbnfRules rules, parse_ebnf(text, limits));
  ASSIGN_OR_RETURN(rules, without_left_recursion(std::move(rules), limits));
  const auto first = static_cast<NodeId>(program.nodes.size());
  const NodeId root = EbnfLowering(program, rules).lower();
  if (program.regexes.is_full()) return resource_exhausted("ebnf: needs more memory than the limit for a grammar");
  drop_endless(program, first);
  return root;
}

}  // namespace deepinfer
