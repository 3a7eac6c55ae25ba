// SPDX-License-Identifier: MIT
#include "grammar/number_language.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace deepinfer {
namespace {

constexpr int kExponentMax = 399, kLargeExponent = 0, kSmallExponent = 1;
constexpr uint32_t kFractionMax = 64, kMantissaMax = 16;

class NumberBuilder {
 public:
  explicit NumberBuilder(RegexPool& pool) : pool_(pool), digit_(digits('0', '9')), digits_(star(digit_)) {}

  RegexId digits(char low, char high) {
    if (low > high) return RegexPool::kNone;
    return pool_.chars(CharSet::range(static_cast<char32_t>(low), static_cast<char32_t>(high) + 1));
  }
  RegexId letter(char c) { return pool_.chars(CharSet::of(static_cast<char32_t>(c))); }
  RegexId star(RegexId a) { return pool_.repeat(a, 0, RegexPool::kInfinite); }
  RegexId times(RegexId a, size_t n) { return pool_.repeat(a, static_cast<uint32_t>(n), static_cast<uint32_t>(n)); }
  RegexId optional(RegexId a) { return pool_.repeat(a, 0, 1); }
  RegexId join(std::initializer_list<RegexId> parts) {
    RegexId result = RegexPool::kEmpty;
    for (const RegexId* at = parts.end(); at != parts.begin();) result = pool_.concat(*--at, result);
    return result;
  }
  RegexId text(std::string_view s) { return pool_.text(std::u32string(s.begin(), s.end())); }

  RegexId whole() { return pool_.either(letter('0'), join({digits('1', '9'), digits_})); }
  RegexId fraction() { return optional(join({letter('.'), pool_.repeat(digit_, 1, kFractionMax)})); }
  RegexId mantissa() {
    return join({digits('1', '9'), optional(join({letter('.'), pool_.repeat(digit_, 1, kMantissaMax)}))});
  }

  // e+X or e-X for exponents of [low, high], within the spellings of this file.
  RegexId exponents(int low, int high) {
    std::vector<std::u32string> large, small;
    for (int x = std::max(low, kLargeExponent); x <= std::min(high, kExponentMax); ++x) add_spellings(x, large);
    for (int x = std::max(-high, kSmallExponent); x <= std::min(-low, kExponentMax); ++x) { add_spellings(x, small); }
    const RegexId e = pool_.chars([] {
      CharSet set = CharSet::of('e');
      set.add('E', 'E' + 1);
      return set;
    }());
    const RegexId positive =
        large.empty() ? RegexPool::kNone : join({optional(letter('+')), pool_.any_of(std::move(large))});
    const RegexId negative = small.empty() ? RegexPool::kNone : join({letter('-'), pool_.any_of(std::move(small))});
    return pool_.concat(e, pool_.either(positive, negative));
  }

  // Magnitudes >= (or >) the value, or <= (<): plain decimals.
  RegexId plain_compared(const Decimal& value, bool at_least, bool is_exclusive) {
    const std::string whole_digits = whole_of(value), fraction_digits = fraction_of(value);
    const size_t n = whole_digits.size();
    std::vector<RegexId> ways;
    if (at_least) {
      ways.push_back(
          join({digits('1', '9'), pool_.repeat(digit_, static_cast<uint32_t>(n), RegexPool::kInfinite), fraction()}));
    } else if (n > 1) {
      ways.push_back(join(
          {pool_.either(letter('0'), join({digits('1', '9'), pool_.repeat(digit_, 0, static_cast<uint32_t>(n - 2))})),
           fraction()}));
    }
    for (size_t i = 0; i < n; ++i) {
      const char d = whole_digits[i];
      const RegexId other = at_least ? digits(static_cast<char>(d + 1), '9')
                                     : digits(i == 0 && n > 1 ? '1' : '0', static_cast<char>(d - 1));
      ways.push_back(join({text(whole_digits.substr(0, i)), other, times(digit_, n - i - 1), fraction()}));
    }
    ways.push_back(join({text(whole_digits), fraction_compared(fraction_digits, at_least, is_exclusive)}));
    return pool_.both(pool_.either(std::move(ways)), join({whole(), fraction()}));
  }

  // What may follow equal whole digits.
  RegexId fraction_compared(const std::string& wanted, bool at_least, bool is_exclusive) {
    std::vector<RegexId> ways;
    const RegexId point = letter('.');
    if (wanted.empty() ? !is_exclusive : !at_least) ways.push_back(RegexPool::kEmpty);
    for (size_t i = 0; i < wanted.size(); ++i) {
      const char d = wanted[i];
      const RegexId other = at_least ? digits(static_cast<char>(d + 1), '9') : digits('0', static_cast<char>(d - 1));
      ways.push_back(join({point, text(wanted.substr(0, i)), other, digits_}));
      if (!at_least && i > 0) ways.push_back(join({point, text(wanted.substr(0, i))}));
    }
    const RegexId zeros = star(letter('0'));
    RegexId rest = RegexPool::kNone;
    if (at_least) rest = is_exclusive ? join({zeros, digits('1', '9'), digits_}) : digits_;
    else if (!is_exclusive) rest = zeros;
    if (wanted.empty()) rest = pool_.both(rest, pool_.repeat(digit_, 1, RegexPool::kInfinite));
    ways.push_back(join({point, text(wanted), rest}));
    return pool_.either(std::move(ways));
  }

  RegexId magnitude_compared(const Decimal& value, bool at_least, bool is_exclusive) {
    std::vector<RegexId> ways;
    const bool is_zero = value.digits.empty();
    const int decade = value.exponent + static_cast<int>(value.digits.size()) - 1;
    if (decade > kExponentMax || (!is_zero && decade < -kExponentMax)) {
      const bool all = (decade > 0) != at_least;
      return all ? magnitude() : RegexPool::kNone;
    }
    ways.push_back(plain_compared(value, at_least, is_exclusive));
    if (is_zero) {
      if (at_least) ways.push_back(join({mantissa(), exponents(-kExponentMax, kExponentMax)}));
      return pool_.either(std::move(ways));
    }
    ways.push_back(
        join({mantissa(), at_least ? exponents(decade + 1, kExponentMax) : exponents(-kExponentMax, decade - 1)}));
    if (const RegexId same = exponents(decade, decade); same != RegexPool::kNone) {
      Decimal m = value;
      m.exponent = 1 - static_cast<int>(m.digits.size());
      ways.push_back(join({pool_.both(plain_compared(m, at_least, is_exclusive), mantissa()), same}));
    }
    return pool_.either(std::move(ways));
  }

  RegexId magnitude() {
    return pool_.either(join({whole(), fraction()}), join({mantissa(), exponents(-kExponentMax, kExponentMax)}));
  }
  RegexId zero() {
    return join({letter('0'), optional(join({letter('.'), pool_.repeat(letter('0'), 1, kFractionMax)}))});
  }
  RegexId minus(RegexId magnitude) { return pool_.concat(letter('-'), magnitude); }

 private:
  static void add_spellings(int x, std::vector<std::u32string>& out) {  // e+5 and e+05
    const std::string s = std::to_string(x);
    out.emplace_back(s.begin(), s.end());
    if (x < 10) out.push_back(U"0" + out.back());
  }
  static std::string whole_of(const Decimal& value) {
    const int n = static_cast<int>(value.digits.size()) + value.exponent;
    if (value.digits.empty() || n <= 0) return "0";
    std::string s = value.digits.substr(0, static_cast<size_t>(n));
    s.resize(static_cast<size_t>(n), '0');
    return s;
  }
  static std::string fraction_of(const Decimal& value) {
    const int n = static_cast<int>(value.digits.size()) + value.exponent;
    if (value.digits.empty() || value.exponent >= 0) return "";
    if (n >= 0) return value.digits.substr(static_cast<size_t>(n));
    return std::string(static_cast<size_t>(-n), '0') + value.digits;
  }

  RegexPool& pool_;
  RegexId digit_, digits_;
};

RegexId compared(RegexPool& pool, const NumberBound& bound, bool at_least) {
  NumberBuilder b(pool);
  const bool is_zero = bound.value.digits.empty();
  Decimal magnitude = bound.value;
  magnitude.is_negative = false;
  // value >= -m: every positive number, and negative ones of magnitude <= m. The other cases mirror this.
  const bool is_far_side = !is_zero && bound.value.is_negative == at_least;
  if (is_far_side) {
    const RegexId near = b.magnitude_compared(magnitude, false, bound.is_exclusive);
    return at_least ? pool.either(b.magnitude(), b.minus(near)) : pool.either(b.minus(b.magnitude()), near);
  }
  const RegexId beyond = b.magnitude_compared(magnitude, true, bound.is_exclusive);
  const RegexId zero = is_zero && !bound.is_exclusive ? b.zero() : RegexPool::kNone;
  return at_least ? pool.either(beyond, b.minus(zero)) : pool.either(b.minus(beyond), zero);
}

}  // namespace

Decimal Decimal::of(const Json& value) {
  Decimal d;
  std::string text;
  if (value.is_integer()) {
    text = value.kind() == Json::Kind::kUint ? std::to_string(value.as_uint()) : std::to_string(value.as_int());
  } else {
    text = fmt::format("{}", value.as_double());
  }
  size_t i = 0;
  if (text[i] == '-') {
    d.is_negative = true;
    ++i;
  }
  bool in_fraction = false;
  for (; i < text.size() && text[i] != 'e'; ++i) {
    if (text[i] == '.') {
      in_fraction = true;
      continue;
    }
    d.digits.push_back(text[i]);
    if (in_fraction) --d.exponent;
  }
  if (i < text.size()) d.exponent += std::stoi(text.substr(i + 1));
  while (!d.digits.empty() && d.digits.back() == '0') {
    d.digits.pop_back();
    ++d.exponent;
  }
  d.digits.erase(0, std::min(d.digits.find_first_not_of('0'), d.digits.size()));
  if (d.digits.empty()) d = {};
  return d;
}

RegexId any_number(RegexPool& pool) {
  NumberBuilder b(pool);
  return pool.concat(b.optional(b.letter('-')), b.magnitude());
}

RegexId plain_number(RegexPool& pool) {
  NumberBuilder b(pool);
  return b.join({b.optional(b.letter('-')), b.whole(), b.fraction()});
}

RegexId plain_integer(RegexPool& pool, bool accept_point_zero) {
  NumberBuilder b(pool);
  const RegexId zeros = b.optional(b.join({b.letter('.'), pool.repeat(b.letter('0'), 1, kFractionMax)}));
  return b.join({b.optional(b.letter('-')), b.whole(), accept_point_zero ? zeros : RegexPool::kEmpty});
}

RegexId any_integer(RegexPool& pool, bool accept_point_zero) {
  NumberBuilder b(pool);
  const RegexId minus = b.optional(b.letter('-'));
  if (!accept_point_zero) return pool.concat(minus, b.whole());
  const RegexId zeros = b.optional(b.join({b.letter('.'), pool.repeat(b.letter('0'), 1, kFractionMax)}));
  // d.ddde+X is whole when no digit but zero stands more than X places behind the point.
  std::vector<RegexId> ways{b.join({b.whole(), zeros}),
                            b.join({b.mantissa(), b.exponents(kMantissaMax, kExponentMax)})};
  for (uint32_t x = 0; x < kMantissaMax; ++x) {
    const RegexId fraction =
        pool.concat(pool.repeat(b.digits('0', '9'), 0, x), pool.repeat(b.letter('0'), 0, kMantissaMax));
    const RegexId part = b.optional(
        b.join({b.letter('.'), pool.both(fraction, pool.repeat(pool.chars(CharSet::all()), 1, kMantissaMax))}));
    ways.push_back(b.join({b.digits('1', '9'), part, b.exponents(static_cast<int>(x), static_cast<int>(x))}));
  }
  return pool.concat(minus, pool.either(std::move(ways)));
}

RegexId number_at_least(RegexPool& pool, const NumberBound& bound) { return compared(pool, bound, true); }
RegexId number_at_most(RegexPool& pool, const NumberBound& bound) { return compared(pool, bound, false); }

RegexId number_equal(RegexPool& pool, const Decimal& value) {
  NumberBuilder b(pool);
  if (value.digits.empty()) return pool.concat(b.optional(b.letter('-')), b.zero());
  Decimal magnitude = value;
  magnitude.is_negative = false;
  const RegexId equal =
      pool.both(b.magnitude_compared(magnitude, true, false), b.magnitude_compared(magnitude, false, false));
  return value.is_negative ? b.minus(equal) : equal;
}

Result<RegexId> number_multiple_of(RegexPool& pool, const Decimal& divisor) {
  if (divisor.digits.empty() || divisor.is_negative) return invalid_argument("multipleOf: must be above 0");
  const size_t num_digits = divisor.digits.size() + static_cast<size_t>(std::max(divisor.exponent, 0));
  if (num_digits > 17 || divisor.exponent < -300) return unimplemented("multipleOf: more than 17 digits");
  std::string digits = divisor.digits + std::string(static_cast<size_t>(std::max(divisor.exponent, 0)), '0');
  DecimalDivisor d;
  d.divisor = std::stoull(digits);
  d.num_decimals = std::max(-divisor.exponent, 0);
  const RegexId plain = pool.multiple_of(d);
  d.has_exponent = true;
  return pool.either(plain, pool.multiple_of(d));
}

}  // namespace deepinfer
