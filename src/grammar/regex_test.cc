// SPDX-License-Identifier: MIT
// Random patterns against a matcher that tries every split, and the algebra against truth tables.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/philox.h"
#include "grammar/number_language.h"
#include "grammar/regex_syntax.h"

namespace deepinfer {
namespace {

// A pattern as a tree of its own, written out as text and matched by brute force.
struct Pattern {
  char kind;  // 'a'..'c' a letter, '.', '|', '&' (sequence), '*', '?', '2' ({1,2})
  std::vector<Pattern> parts;

  std::string text() const {
    switch (kind) {
      case '|': return "(?:" + parts[0].text() + "|" + parts[1].text() + ")";
      case '&': return parts[0].text() + parts[1].text();
      case '*': return "(?:" + parts[0].text() + ")*";
      case '?': return "(?:" + parts[0].text() + ")?";
      case '2': return "(?:" + parts[0].text() + "){1,2}";
      default: return std::string(1, kind);
    }
  }
  bool matches(std::string_view s) const {
    switch (kind) {
      case '|': return parts[0].matches(s) || parts[1].matches(s);
      case '&': return splits(s, parts[0], parts[1]);
      case '*':
        if (s.empty()) return true;
        for (size_t i = 1; i <= s.size(); ++i)
          if (parts[0].matches(s.substr(0, i)) && matches(s.substr(i))) return true;
        return false;
      case '?': return s.empty() || parts[0].matches(s);
      case '2': return parts[0].matches(s) || splits(s, parts[0], parts[0]);
      case '.': return s.size() == 1;
      default: return s.size() == 1 && s[0] == kind;
    }
  }
  static bool splits(std::string_view s, const Pattern& a, const Pattern& b) {
    for (size_t i = 0; i <= s.size(); ++i)
      if (a.matches(s.substr(0, i)) && b.matches(s.substr(i))) return true;
    return false;
  }
};

Pattern random_pattern(Rng& rng, int depth) {
  static constexpr char kLeaves[] = {'a', 'b', 'c', '.'}, kNodes[] = {'|', '&', '&', '*', '?', '2'};
  if (depth == 0 || rng.below(4) == 0) return {kLeaves[rng.below(4)], {}};
  const char kind = kNodes[rng.below(6)];
  Pattern p{kind, {}};
  for (int i = 0; i < (kind == '|' || kind == '&' ? 2 : 1); ++i) p.parts.push_back(random_pattern(rng, depth - 1));
  return p;
}

std::u32string wide(std::string_view s) { return {s.begin(), s.end()}; }

std::vector<std::string> all_words(size_t length_max) {
  std::vector<std::string> words{""};
  for (size_t i = 0; i < words.size(); ++i)
    if (words[i].size() < length_max)
      for (const char c : {'a', 'b', 'c'}) words.push_back(words[i] + c);
  return words;
}

TEST(Regex, RandomPatternsAgreeWithBruteForce) {
  Rng rng(7);
  const std::vector<std::string> words = all_words(5);
  RegexPool pool;
  for (int round = 0; round < 300; ++round) {
    const Pattern p = random_pattern(rng, 4), q = random_pattern(rng, 3);
    auto whole = parse_regex(pool, p.text(), RegexDialect::kRe2);
    auto found = parse_regex(pool, p.text(), RegexDialect::kEcma);
    auto other = parse_regex(pool, q.text(), RegexDialect::kRe2);
    ASSERT_TRUE(whole.ok() && found.ok() && other.ok()) << p.text();
    const RegexId both = pool.both(*whole, *other), without = pool.both(*whole, pool.negated(*other));
    bool any = false;
    for (const std::string& word : words) {
      const bool in_p = p.matches(word), in_q = q.matches(word);
      ASSERT_EQ(pool.matches(*whole, wide(word)), in_p) << p.text() << " on " << word;
      ASSERT_EQ(pool.matches(both, wide(word)), in_p && in_q) << p.text() << " & " << q.text();
      ASSERT_EQ(pool.matches(without, wide(word)), in_p && !in_q);
      bool inside = false;
      for (size_t i = 0; i <= word.size() && !inside; ++i)
        for (size_t n = 0; i + n <= word.size() && !inside; ++n) inside = p.matches(word.substr(i, n));
      ASSERT_EQ(pool.matches(*found, wide(word)), inside) << p.text() << " in " << word;
      any |= in_p && !in_q;
    }
    ASSERT_TRUE(!any || pool.has_text(without));
  }
}

TEST(Regex, AnchorsAndLookAhead) {
  RegexPool pool;
  const auto found = [&](const char* pattern, std::string_view text) {
    auto id = parse_regex(pool, pattern, RegexDialect::kEcma);
    EXPECT_TRUE(id.ok()) << pattern << ": " << id.status().message();
    return id.ok() && pool.matches(*id, wide(text));
  };
  EXPECT_TRUE(found("^a|b$", "axx"));
  EXPECT_TRUE(found("^a|b$", "xxb"));
  EXPECT_FALSE(found("^a|b$", "xax"));
  EXPECT_TRUE(found("(^|-)a($|-)", "x-a"));
  EXPECT_FALSE(found("(^|-)a($|-)", "xa"));
  EXPECT_TRUE(found("^(?!ab)a", "ac"));
  EXPECT_FALSE(found("^(?!ab)a", "abc"));
  EXPECT_FALSE(found("^(?=.*b)a+$", "aa"));
  EXPECT_TRUE(found("x{2,}$", "axxx"));
  EXPECT_TRUE(found("a{,2}", "a{,2}"));
  EXPECT_FALSE(found("^\\S+$", "a\xC2\xA0"));
}

TEST(Regex, RefusalsNameThePosition) {
  RegexPool pool;
  EXPECT_EQ(parse_regex(pool, "ab(?<=x)", RegexDialect::kEcma).status().message(),
            "pattern at 4: look-behind is not supported");
  EXPECT_EQ(parse_regex(pool, "(a)\\1", RegexDialect::kRe2).status().message(),
            "pattern at 5: back-references are not supported");
  EXPECT_FALSE(parse_regex(pool, "a(?=b)", RegexDialect::kRe2).ok());
  EXPECT_FALSE(parse_regex(pool, "(((", RegexDialect::kRe2).ok());
  EXPECT_FALSE(parse_regex(pool, "a{1000001}", RegexDialect::kRe2).ok());
}

TEST(Regex, CountersAreNotUnrolled) {
  RegexPool pool;
  const size_t before = pool.num_nodes();
  auto id = parse_regex(pool, "(a|b){1000,100000}", RegexDialect::kRe2);
  ASSERT_TRUE(id.ok());
  EXPECT_LT(pool.num_nodes() - before, 10u);
  EXPECT_FALSE(pool.matches(*id, std::u32string(999, U'a')));
  EXPECT_TRUE(pool.matches(*id, std::u32string(1000, U'b')));
}

TEST(Numbers, BoundsAgreeWithArithmetic) {
  RegexPool pool;
  const double values[] = {0,   1,    -1,  9,     10,     11,   99,     100,  0.5,   0.05, -0.5,
                           1.5, 2.25, -10, -9.99, 123456, 1e16, 1.5e20, 1e-7, -3e-9, 4e300};
  for (const double bound : values) {
    const Json bound_json(bound);
    for (const bool exclusive : {false, true}) {
      const RegexId low = number_at_least(pool, {Decimal::of(bound_json), exclusive});
      const RegexId high = number_at_most(pool, {Decimal::of(bound_json), exclusive});
      for (const double value : values) {
        const std::string text = to_json(Json(value));
        EXPECT_EQ(pool.matches(low, wide(text)), exclusive ? value > bound : value >= bound) << text << " >= " << bound;
        EXPECT_EQ(pool.matches(high, wide(text)), exclusive ? value < bound : value <= bound)
            << text << " <= " << bound;
      }
    }
    const RegexId equal = number_equal(pool, Decimal::of(bound_json));
    for (const double value : values) EXPECT_EQ(pool.matches(equal, wide(to_json(Json(value)))), value == bound);
  }
}

// In thousandths, so that the arithmetic is exact.
TEST(Numbers, MultiplesAgreeWithArithmetic) {
  RegexPool pool;
  for (const auto& [divisor, thousandths] : {std::pair<double, int64_t>{7, 7000},
                                             {0.01, 10},
                                             {0.05, 50},
                                             {0.125, 125},
                                             {2.5, 2500},
                                             {12, 12000},
                                             {0.003, 3}}) {
    const RegexId multiple = number_multiple_of(pool, Decimal::of(Json(divisor))).value();
    const RegexId numbers = pool.both(any_number(pool), multiple);
    const auto matches = [&](const std::string& text) {
      return pool.matches(numbers, std::u32string(text.begin(), text.end()));
    };
    for (int64_t value = 0; value <= 60'000; value += 1 + value % 3) {
      const std::string text = std::to_string(value / 1000) + "." + std::to_string(1000 + value % 1000).substr(1);
      EXPECT_EQ(matches(text), value % thousandths == 0) << text << " of " << divisor;
      EXPECT_EQ(matches("-" + text + "00"), value % thousandths == 0) << text << " of " << divisor;
    }
    for (int64_t mantissa = 100; mantissa < 1000; ++mantissa) {
      std::string text = std::to_string(mantissa);
      text.insert(1, ".");
      int64_t value = mantissa;  // with e-1
      for (const char* exponent : {"e-1", "e0", "e+1", "E2", "e+03"}) {
        EXPECT_EQ(matches(text + exponent), value % thousandths == 0) << text << exponent << " of " << divisor;
        value *= 10;
      }
    }
  }
  RegexId left = pool.both(any_number(pool), number_multiple_of(pool, Decimal::of(Json(0.05))).value());
  for (const char c : std::string("12.0")) left = pool.derive(left, static_cast<char32_t>(c));
  EXPECT_TRUE(pool.has_text(pool.derive(left, U'5')));
  EXPECT_FALSE(pool.has_text(pool.derive(left, U'1'))) << "no exponent behind two digits, and the places are used up";
}

TEST(Numbers, Multiples) {
  RegexPool pool;
  const auto is_multiple = [&](double divisor, const char* text) {
    auto id = number_multiple_of(pool, Decimal::of(Json(divisor)));
    EXPECT_TRUE(id.ok());
    return pool.matches(pool.both(any_number(pool), *id), wide(text));
  };
  EXPECT_TRUE(is_multiple(0.01, "19.99"));
  EXPECT_TRUE(is_multiple(0.01, "19.9900"));
  EXPECT_FALSE(is_multiple(0.01, "19.995"));
  EXPECT_TRUE(is_multiple(7, "-21"));
  EXPECT_FALSE(is_multiple(7, "22"));
  EXPECT_TRUE(is_multiple(2.5, "7.5"));
  EXPECT_TRUE(is_multiple(25, "1.5e2"));
  EXPECT_TRUE(is_multiple(0.001, "5e-3"));
  EXPECT_FALSE(is_multiple(0.01, "5e-3"));
}

}  // namespace
}  // namespace deepinfer
