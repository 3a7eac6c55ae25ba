// SPDX-License-Identifier: MIT
// Rules of an EBNF text as trees, and the rewriting that removes left recursion (left-corner transform; Rosenkrantz and
// Lewis 1970) so that the machine can read them from the left.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "grammar/char_set.h"
#include "grammar/ebnf.h"

namespace deepinfer {

struct EbnfTree;
using EbnfNode = std::shared_ptr<const EbnfTree>;

struct EbnfTree {
  enum class Kind { kText, kChars, kSequence, kEither, kRepeat, kRule };
  Kind kind = Kind::kSequence;
  std::u32string text;  // kText
  CharSet chars;        // kChars
  std::vector<EbnfNode> parts;
  uint32_t min = 0, max = 0;  // kRepeat
  size_t rule = 0;            // kRule
};

struct EbnfRules {
  std::vector<std::string> names;
  std::vector<EbnfNode> bodies;
  size_t root = 0;
  std::map<size_t, size_t> absorbed;  // by rule: one whose texts add nothing behind its texts (GrammarProgram)
};

// Errors: invalid_argument (line, column and what is wrong there; no rule "root"), resource_exhausted (beyond a limit).
Result<EbnfRules> parse_ebnf(std::string_view text, const EbnfLimits& limits);
// The same language without left recursion. Errors: unimplemented (through rules that may be empty in too many ways),
// resource_exhausted (too many rules in one recursion, beyond a limit).
Result<EbnfRules> without_left_recursion(EbnfRules rules, const EbnfLimits& limits);

namespace ebnf {
EbnfNode sequence(std::vector<EbnfNode> parts);
EbnfNode either(std::vector<EbnfNode> parts);
EbnfNode repeat(EbnfNode part, uint32_t min, uint32_t max);
EbnfNode rule(size_t index);
}  // namespace ebnf

}  // namespace deepinfer
