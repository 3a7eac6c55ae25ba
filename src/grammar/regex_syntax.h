// SPDX-License-Identifier: MIT
// Regular expressions as text, read into a RegexPool. Two dialects: ECMA-262 with the Unicode flag (JSON Schema's
// `pattern`, found anywhere in the text) and an RE2-like one (the whole text must match). No back-references.
// Look-ahead is read in the ECMA dialect outside repeats; every other look-around and \b are refused with their
// position.
#pragma once

#include <string_view>

#include "base/status.h"
#include "grammar/regex_pool.h"

namespace deepinfer {

enum class RegexDialect { kEcma, kRe2 };

struct RegexLimits {
  size_t code_points_max = 16'384;
  int depth_max = 200;
  uint32_t count_max = 1'000'000;
  size_t alternatives_max = 512;  // made while anchors are carried to the ends
};

// Texts in which the pattern is found (kEcma) or that it matches whole (kRe2).
// Errors: invalid_argument (syntax) or unimplemented (outside the subset), with the offset in code points.
Result<RegexId> parse_regex(RegexPool& pool, std::string_view pattern, RegexDialect dialect,
                            const RegexLimits& limits = {});
// The ECMA dialect, but the whole text must match.
Result<RegexId> parse_whole_regex(RegexPool& pool, std::string_view pattern);

// \d, \w, \s (and \D, \W, \S) of a dialect. Precondition: `letter` is one of these.
CharSet regex_class(char32_t letter, RegexDialect dialect);

}  // namespace deepinfer
