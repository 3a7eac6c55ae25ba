// SPDX-License-Identifier: MIT
// A parsed regular expression in which anchors and look-ahead are still nodes, and its way to a plain language.
#pragma once

#include <vector>

#include "base/status.h"
#include "grammar/regex_pool.h"
#include "grammar/regex_syntax.h"

namespace deepinfer {

struct RegexTree {
  enum class Kind { kChars, kSequence, kEither, kRepeat, kBegin, kEnd, kAhead, kNotAhead };
  Kind kind = Kind::kSequence;
  CharSet chars;               // kChars
  uint32_t min = 0, max = 0;   // kRepeat
  size_t offset = 0;           // in the pattern, for messages
  bool has_assertion = false;  // an anchor or look-ahead inside
  std::vector<RegexTree> parts;
};

// `is_whole`: the tree must match the whole text; else it may be found anywhere. Errors: unimplemented (an anchor or
// look-ahead where it cannot be resolved), resource_exhausted (more memory than a grammar may take).
Result<RegexId> language_of(RegexPool& pool, const RegexTree& tree, bool is_whole, const RegexLimits& limits);

}  // namespace deepinfer
