// SPDX-License-Identifier: MIT
// JSON numbers as languages: bounds by comparing digits, multiples by a remainder automaton. The spellings are those
// that printers use: plain decimals, and d.ddde+X / d.ddde-X with exponents up to 399, up to 17 digits. Within these
// spellings every language here is exact, so intersections and complements are too.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "grammar/regex_pool.h"

namespace deepinfer {

// (-1)^negative * digits * 10^exponent; digits without zeros at either end, empty for zero.
struct Decimal {
  bool is_negative = false;
  std::string digits;
  int exponent = 0;

  // Precondition: value.is_number().
  static Decimal of(const Json& value);
};

struct NumberBound {
  Decimal value;
  bool is_exclusive = false;
};

// Every number, in the spellings above.
RegexId any_number(RegexPool& pool);
// `accept_point_zero`: 1.0 is an integer too (drafts 6 and later).
RegexId any_integer(RegexPool& pool, bool accept_point_zero);
// The same without exponents.
RegexId plain_number(RegexPool& pool);
RegexId plain_integer(RegexPool& pool, bool accept_point_zero);
RegexId number_at_least(RegexPool& pool, const NumberBound& bound);
RegexId number_at_most(RegexPool& pool, const NumberBound& bound);
RegexId number_equal(RegexPool& pool, const Decimal& value);
// unimplemented when the divisor has more than 17 digits; invalid_argument unless it is positive.
Result<RegexId> number_multiple_of(RegexPool& pool, const Decimal& divisor);

}  // namespace deepinfer
