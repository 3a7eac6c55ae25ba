// SPDX-License-Identifier: MIT
// Random grammars, left recursion and empty rules included, against a recogniser that computes spans by fixpoint.
#include "grammar/ebnf.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>

#include "base/philox.h"
#include "grammar/ebnf_tree.h"
#include "grammar/machine.h"

namespace deepinfer {
namespace {

std::unique_ptr<Machine> machine_of(const std::string& text) {
  auto program = std::make_unique<GrammarProgram>();
  auto root = add_ebnf(*program, text);
  EXPECT_TRUE(root.ok()) << (root.ok() ? "" : root.status().message()) << "\n" << text;
  program->start = root.ok() ? *root : program->add({GrammarNode::Kind::kChoice});
  program->find_nullable();
  return std::make_unique<Machine>(std::move(program));
}

bool accepts(Machine& machine, std::string_view text) {
  StateId state = machine.start();
  for (const char c : text) state = machine.step(state, static_cast<uint8_t>(c));
  return machine.is_accepting(state);
}

// All ends of matches of `node` that begin at each place: plain fixpoint over (rule, begin) -> ends.
class Recogniser {
 public:
  Recogniser(const EbnfRules& rules, std::u32string text) : rules_(rules), text_(std::move(text)) {
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t r = 0; r < rules_.bodies.size(); ++r)
        for (size_t at = 0; at <= text_.size(); ++at)
          for (const size_t end : ends(rules_.bodies[r], at)) changed |= known_[{r, at}].insert(end).second;
    }
  }
  bool accepts() { return known_[{rules_.root, 0}].contains(text_.size()); }

 private:
  std::set<size_t> ends(const EbnfNode& node, size_t at) {
    std::set<size_t> out;
    switch (node->kind) {
      case EbnfTree::Kind::kText:
        if (text_.compare(at, node->text.size(), node->text) == 0) out.insert(at + node->text.size());
        break;
      case EbnfTree::Kind::kChars:
        if (at < text_.size() && node->chars.contains(text_[at])) out.insert(at + 1);
        break;
      case EbnfTree::Kind::kRule: return known_[{node->rule, at}];
      case EbnfTree::Kind::kEither:
        for (const EbnfNode& part : node->parts) out.merge(ends(part, at));
        break;
      case EbnfTree::Kind::kSequence: {
        std::set<size_t> from{at};
        for (const EbnfNode& part : node->parts) from = from_all(part, from);
        return from;
      }
      case EbnfTree::Kind::kRepeat: {
        std::set<size_t> from{at};
        for (uint32_t i = 0; i < node->min; ++i) from = from_all(node->parts[0], from);
        out = from;
        for (uint32_t i = node->min; i < node->max; ++i) {
          const size_t before = out.size();
          from = from_all(node->parts[0], from);
          out.insert(from.begin(), from.end());
          if (out.size() == before) break;
        }
        break;
      }
    }
    return out;
  }
  std::set<size_t> from_all(const EbnfNode& part, const std::set<size_t>& from) {
    std::set<size_t> next;
    for (const size_t at : from) next.merge(ends(part, at));
    return next;
  }

  const EbnfRules& rules_;
  std::u32string text_;
  std::map<std::pair<size_t, size_t>, std::set<size_t>> known_;
};

std::string random_expression(Rng& rng, int depth, int num_rules) {
  static const char* kNames[] = {"root", "x", "y", "z"};
  const auto pick = rng.below(depth > 0 ? 8 : 4);
  if (pick < 2) return rng.below(2) == 0 ? "\"a\"" : "\"b\"";
  if (pick < 4) return kNames[rng.below(static_cast<uint64_t>(num_rules))];
  if (pick == 4)
    return "(" + random_expression(rng, depth - 1, num_rules) + " | " + random_expression(rng, depth - 1, num_rules) +
           ")";
  if (pick == 5) {
    static const char* kCounts[] = {"?", "*", "+", "{2}", "{1,2}"};
    return "(" + random_expression(rng, depth - 1, num_rules) + ")" + kCounts[rng.below(5)];
  }
  return random_expression(rng, depth - 1, num_rules) + " " + random_expression(rng, depth - 1, num_rules);
}

std::string random_grammar(Rng& rng) {
  static const char* kNames[] = {"root", "x", "y", "z"};
  const int num_rules = 1 + static_cast<int>(rng.below(4));
  std::string text;
  for (int i = 0; i < num_rules; ++i) {
    text += std::string(kNames[i]) + " ::= " + random_expression(rng, 3, num_rules) + " | " +
            (rng.below(3) == 0 ? std::string("\"\"") : random_expression(rng, 1, num_rules)) + " | \"ab\"\n";
  }
  return text;
}

TEST(Ebnf, RandomGrammarsAgreeWithTheRecogniser) {
  Rng rng(1);
  int num_compared = 0, num_refused = 0;
  for (int round = 0; round < 300; ++round) {
    const std::string text = random_grammar(rng);
    auto rules = parse_ebnf(text, {});
    ASSERT_TRUE(rules.ok()) << text;
    auto program = std::make_unique<GrammarProgram>();
    auto root = add_ebnf(*program, text);
    if (!root.ok()) {
      ++num_refused;
      continue;
    }
    program->start = *root;
    program->find_nullable();
    Machine machine(std::move(program));
    for (size_t length = 0; length <= 5; ++length) {
      for (size_t bits = 0; bits < size_t{1} << length; ++bits) {
        std::u32string word;
        for (size_t i = 0; i < length; ++i) word.push_back((bits >> i & 1) != 0 ? U'a' : U'b');
        const bool expected = Recogniser(*rules, word).accepts();
        ASSERT_EQ(accepts(machine, std::string(word.begin(), word.end())), expected)
            << text << "on \"" << std::string(word.begin(), word.end()) << "\"";
        ++num_compared;
      }
    }
    ASSERT_EQ(machine.failure(), "") << text;
  }
  EXPECT_EQ(num_refused, 0);
  EXPECT_GT(num_compared, 10'000);
}

TEST(Ebnf, Syntax) {
  auto machine =
      machine_of("# a list\nroot ::= item (\",\" item)* # end\nitem ::= [a-c]+ | \"\\x41\\u00e9\" | [^a-z,]{2,3}\n");
  EXPECT_TRUE(accepts(*machine, "abc,A\xC3\xA9,12"));
  EXPECT_FALSE(accepts(*machine, "abc,"));
  EXPECT_FALSE(accepts(*machine, "1234"));
  EXPECT_TRUE(accepts(*machine, "123"));
}

TEST(Ebnf, RightRecursionKeepsItsStatesFew) {
  auto machine = machine_of("root ::= \"a\" root | \"b\"");
  EXPECT_TRUE(accepts(*machine, std::string(10'000, 'a') + "b"));
  EXPECT_LT(machine->num_states(), 20u);
}

TEST(Ebnf, LongLeftRecursion) {
  auto machine = machine_of("root ::= root \"+\" term | term\nterm ::= term \"*\" [0-9] | [0-9]");
  std::string text = "1";
  for (int i = 0; i < 5'000; ++i) text += i % 3 == 0 ? "*2" : "+3";
  EXPECT_TRUE(accepts(*machine, text));
  EXPECT_FALSE(accepts(*machine, text + "+"));
}

// Each has about as many readings of a text as there are ways to put brackets around its parts.
TEST(Ebnf, AmbiguousRulesKeepTheirStatesFew) {
  const struct {
    const char *rules, *part;
  } cases[] = {
      {"root ::= e\ne ::= e \"+\" e | [0-9]+", "1+"},
      {"root ::= e\ne ::= e \"+\" e | e \"*\" e | \"(\" e \")\" | [0-9]+", "1+(2*3)*"},
      {"root ::= s+\ns ::= [a-z]+ | s s | \"(\" s \")\"", "ab(c)"},
      {"root ::= s\ns ::= s s | \"<\" s \">\" | \"x\" | \"\"", "x<x>"},
      {"root ::= (\"<\" root \">\" | \"a\"* )*", "a<a>"},
      {"root ::= e\ne ::= e \"+\" e | f\nf ::= f \"!\" | e \"?\" | [0-9]+", "1!?+"},
      {"root ::= x* x*\nx ::= \"a\" | \"(\" x* \")\"", "a(a)"},
  };
  for (const auto& [rules, part] : cases) {
    auto machine = machine_of(rules);
    std::string text;
    size_t num_after_few = 0;
    for (int i = 0; i < 2'000; ++i) {
      text += part;
      if (i == 20) {
        EXPECT_TRUE(accepts(*machine, text + "1") || accepts(*machine, text)) << rules;
        num_after_few = machine->num_states();
      }
    }
    EXPECT_TRUE(accepts(*machine, text + "1") || accepts(*machine, text)) << rules;
    EXPECT_EQ(machine->num_states(), num_after_few) << rules;
    EXPECT_LT(num_after_few, 200u) << rules;
    EXPECT_EQ(machine->failure(), "");
  }
}

TEST(Ebnf, ErrorsNameLineAndColumn) {
  GrammarProgram program;
  EXPECT_EQ(add_ebnf(program, "root ::= \"a\"\n  b").status().message(),
            "ebnf line 2 column 3: rule \"b\" is not defined");
  EXPECT_EQ(add_ebnf(program, "root ::= [a").status().message(),
            "ebnf line 1 column 10: the line ends inside a literal or class");
  EXPECT_EQ(add_ebnf(program, "x ::= \"a\"").status().message(), "ebnf: no rule \"root\"");
}

}  // namespace
}  // namespace deepinfer
