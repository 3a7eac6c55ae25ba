// SPDX-License-Identifier: MIT
// Grammars in the GBNF dialect: `name ::= expression`, `#` comments, "literals" and [classes] with \n \r \t \" \\ \]
// \xHH \uXXXX \UXXXXXXXX, `.`, groups, alternatives, ? * + {m} {m,n} {m,}. The text must match `root`. Left recursion,
// hidden or not, is rewritten. Undefined rules and syntax errors are named with line and column.
#pragma once

#include <string_view>

#include "base/status.h"
#include "grammar/machine.h"

namespace deepinfer {

struct EbnfLimits {
  size_t nodes_max = 200'000;
  uint32_t count_max = 1'000'000;
  int depth_max = 200;
};

// Adds the rules to `program` and returns the node of `root`. invalid_argument: syntax; resource_exhausted: limits.
Result<NodeId> add_ebnf(GrammarProgram& program, std::string_view text, const EbnfLimits& limits = {});

}  // namespace deepinfer
