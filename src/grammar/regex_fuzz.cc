// SPDX-License-Identifier: MIT
// Property: a pattern is refused or becomes a language in which a shortest text, spelled out, matches, and does not
// match the complement. Both dialects.
#include <string_view>

#include "base/check.h"
#include "grammar/regex_syntax.h"

namespace deepinfer {

int fuzz_regex(const uint8_t* data, size_t size) {
  if (size > 2'000) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  for (const RegexDialect dialect : {RegexDialect::kEcma, RegexDialect::kRe2}) {
    RegexPool pool;
    const auto parsed = parse_regex(pool, text, dialect);
    if (!parsed.ok()) continue;
    RegexId id = parsed.value(), opposite = pool.negated(id);
    for (int i = 0; i < 100 && pool.shortest(id) != 0 && pool.shortest(id) != RegexPool::kInfinite; ++i) {
      const char32_t c = pool.shortest_step(id);
      id = pool.derive(id, c);
      opposite = pool.derive(opposite, c);
    }
    if (!pool.is_full()) CHECK(pool.is_nullable(id) != pool.is_nullable(opposite));
  }
  return 0;
}

}  // namespace deepinfer
