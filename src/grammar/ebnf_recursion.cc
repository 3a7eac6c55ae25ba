// SPDX-License-Identifier: MIT
#include <algorithm>
#include <optional>
#include <set>

#include "grammar/ebnf_tree.h"
#include "grammar/regex_pool.h"

namespace deepinfer {
namespace {

using Kind = EbnfTree::Kind;

class LeftCorner {
 public:
  LeftCorner(EbnfRules rules, const EbnfLimits& limits) : rules_(std::move(rules)), limits_(limits) {}

  Result<EbnfRules> run() {
    find_nullable();
    find_left_calls();
    const size_t num_rules = rules_.bodies.size();
    std::vector<bool> done(num_rules, false);
    for (size_t i = 0; i < num_rules; ++i) {
      if (done[i] || !left_[i].contains(i)) continue;
      std::vector<size_t> group;
      for (size_t j = 0; j < num_rules; ++j)
        if (left_[i].contains(j) && left_[j].contains(i)) group.push_back(j);
      for (const size_t j : group) done[j] = true;
      TRY(rewrite(group));
    }
    TRY(fill_non_empty_rules());
    return std::move(rules_);
  }

 private:
  // `head` (a rule of the group) and then `rest`; without a head, `rest` reads at least one character.
  struct Way {
    std::optional<size_t> head;
    EbnfNode rest;
  };

  bool is_nullable(const EbnfNode& node) const {
    const auto nullable = [this](const EbnfNode& part) { return is_nullable(part); };
    switch (node->kind) {
      case Kind::kText: return node->text.empty();
      case Kind::kChars: return false;
      case Kind::kSequence: return std::ranges::all_of(node->parts, nullable);
      case Kind::kEither: return std::ranges::any_of(node->parts, nullable);
      case Kind::kRepeat: return node->min == 0 || is_nullable(node->parts[0]);
      case Kind::kRule: return node->rule < nullable_.size() && nullable_[node->rule];
    }
    return false;
  }

  void find_nullable() {
    nullable_.assign(rules_.bodies.size(), false);
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < rules_.bodies.size(); ++i)
        if (!nullable_[i] && is_nullable(rules_.bodies[i])) changed = nullable_[i] = true;
    }
  }

  void add_left_calls(const EbnfNode& node, std::set<size_t>& calls) const {
    switch (node->kind) {
      case Kind::kRule: calls.insert(node->rule); return;
      case Kind::kSequence:
        for (const EbnfNode& part : node->parts) {
          add_left_calls(part, calls);
          if (!is_nullable(part)) return;
        }
        return;
      case Kind::kEither:
      case Kind::kRepeat:
        for (const EbnfNode& part : node->parts) add_left_calls(part, calls);
        return;
      default: return;
    }
  }

  // Transitively: the rules a rule may begin with.
  void find_left_calls() {
    const size_t n = rules_.bodies.size();
    std::vector<std::set<size_t>> direct(n);
    for (size_t i = 0; i < n; ++i) add_left_calls(rules_.bodies[i], direct[i]);
    left_.assign(n, {});
    for (size_t i = 0; i < n; ++i) {
      std::vector<size_t> stack(direct[i].begin(), direct[i].end());
      while (!stack.empty()) {
        const size_t next = stack.back();
        stack.pop_back();
        if (left_[i].insert(next).second) stack.insert(stack.end(), direct[next].begin(), direct[next].end());
      }
    }
  }

  static EbnfNode join(const EbnfNode& a, std::vector<EbnfNode> rest) {
    rest.insert(rest.begin(), a);
    return ebnf::sequence(std::move(rest));
  }

  // The non-empty texts of `node` by what they begin with. Bodies may be added meanwhile: `node` is a copy of one.
  Status split(const EbnfNode& node, const std::set<size_t>& group, int depth, std::vector<Way>& ways) {
    if (depth > limits_.depth_max || ++num_steps_ > limits_.nodes_max)
      return unimplemented("ebnf: left recursion through rules that may be empty in too many ways");
    switch (node->kind) {
      case Kind::kText:
        if (!node->text.empty()) ways.push_back({std::nullopt, node});
        return {};
      case Kind::kChars: ways.push_back({std::nullopt, node}); return {};
      case Kind::kRule:
        if (group.contains(node->rule)) ways.push_back({node->rule, ebnf::sequence({})});
        else ways.push_back({std::nullopt, is_nullable(node) ? ebnf::rule(non_empty_rule(node->rule)) : node});
        return {};
      case Kind::kEither:
        for (const EbnfNode& part : node->parts) TRY(split(part, group, depth + 1, ways));
        return {};
      case Kind::kSequence:
        for (size_t i = 0; i < node->parts.size(); ++i) {
          const std::vector<EbnfNode> rest(node->parts.begin() + static_cast<ptrdiff_t>(i) + 1, node->parts.end());
          std::vector<Way> first;
          TRY(split(node->parts[i], group, depth + 1, first));
          for (const Way& way : first) ways.push_back({way.head, join(way.rest, rest)});
          if (!is_nullable(node->parts[i])) return {};
        }
        return {};
      case Kind::kRepeat: {
        if (node->max == 0) return {};
        const uint32_t max = node->max == RegexPool::kInfinite ? node->max : node->max - 1;
        const uint32_t min = is_nullable(node->parts[0]) || node->min == 0 ? 0 : node->min - 1;
        std::vector<Way> first;
        TRY(split(node->parts[0], group, depth + 1, first));
        for (const Way& way : first)
          ways.push_back({way.head, join(way.rest, {ebnf::repeat(node->parts[0], min, max)})});
        return {};
      }
    }
    return {};
  }

  // A rule for the non-empty texts of one; its body comes when that one's is final.
  size_t non_empty_rule(size_t rule) {
    const auto [at, is_new] = non_empty_.emplace(rule, rules_.bodies.size());
    if (is_new) {
      rules_.bodies.push_back(ebnf::either({}));
      rules_.names.push_back(rules_.names[rule] + "+");
      waiting_.push_back(rule);
    }
    return at->second;
  }

  Status fill_non_empty_rules() {
    while (!waiting_.empty()) {
      const size_t rule = waiting_.back();
      waiting_.pop_back();
      ASSIGN_OR_RETURN(rules_.bodies[non_empty_.at(rule)], non_empty(rules_.bodies[rule]));
    }
    return {};
  }

  // The non-empty texts of what follows a head.
  Result<EbnfNode> non_empty(EbnfNode node) {
    std::vector<Way> ways;
    TRY(split(node, {}, 0, ways));
    std::vector<EbnfNode> parts;
    for (const Way& way : ways) parts.push_back(way.rest);
    return ebnf::either(std::move(parts));
  }

  Status rewrite(const std::vector<size_t>& group_rules) {
    const std::set<size_t> group(group_rules.begin(), group_rules.end());
    if (group.size() > 200) return resource_exhausted("ebnf: more than 200 rules in one left recursion");
    std::map<size_t, std::vector<Way>> ways;
    for (const size_t rule : group) {
      const EbnfNode body = rules_.bodies[rule];
      TRY(split(body, group, 0, ways[rule]));
    }
    // up[c]: rules that consist of c alone, after any number of such steps.
    std::map<size_t, std::set<size_t>> up;
    for (const size_t c : group) {
      std::vector<size_t> stack{c};
      while (!stack.empty()) {
        const size_t at = stack.back();
        stack.pop_back();
        if (!up[c].insert(at).second) continue;
        for (const size_t d : group)
          for (const Way& way : ways[d])
            if (way.head == at && is_nullable(way.rest)) stack.push_back(d);
      }
    }
    // tails[b][c]: what completes b once c has been read at its left corner.
    std::map<size_t, std::map<size_t, size_t>> tails;
    for (const size_t b : group)
      for (const size_t c : group) {
        tails[b][c] = rules_.bodies.size();
        rules_.bodies.emplace_back();
        rules_.names.push_back(rules_.names[b] + "<" + rules_.names[c]);
      }
    std::map<size_t, EbnfNode> bodies;
    for (const size_t b : group) {
      std::vector<EbnfNode> starts;
      if (nullable_[b]) starts.push_back(ebnf::sequence({}));
      for (const size_t c : group) {
        for (const Way& way : ways[c])
          if (!way.head && left_or_self(b, c)) starts.push_back(join(way.rest, {ebnf::rule(tails[b][c])}));
        std::vector<EbnfNode> ends;
        if (up[c].contains(b)) ends.push_back(ebnf::sequence({}));
        for (const size_t inner : up[c])
          for (const size_t d : group)
            for (const Way& way : ways[d]) {
              if (way.head != inner) continue;
              ASSIGN_OR_RETURN(const EbnfNode rest, non_empty(way.rest));
              if (rest->kind == Kind::kEither && rest->parts.empty()) continue;
              ends.push_back(join(rest, {ebnf::rule(tails[b][d])}));
            }
        rules_.bodies[tails[b][c]] = ebnf::either(std::move(ends));
      }
      bodies[b] = ebnf::either(std::move(starts));
    }
    for (const size_t b : group) rules_.bodies[b] = bodies[b];
    // Up from c to b, and then round from b to b, is a way up from c to b.
    for (const size_t b : group)
      for (const size_t c : group) rules_.absorbed[tails[b][c]] = tails[b][b];
    return {};
  }

  bool left_or_self(size_t b, size_t c) const { return b == c || left_[b].contains(c); }

  EbnfRules rules_;
  const EbnfLimits& limits_;
  std::vector<bool> nullable_;
  std::vector<std::set<size_t>> left_;
  std::map<size_t, size_t> non_empty_;  // by rule
  std::vector<size_t> waiting_;         // rules whose non-empty one has no body yet
  size_t num_steps_ = 0;
};

}  // namespace

Result<EbnfRules> without_left_recursion(EbnfRules rules, const EbnfLimits& limits) {
  return LeftCorner(std::move(rules), limits).run();
}

}  // namespace deepinfer
