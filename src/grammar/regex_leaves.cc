// SPDX-License-Identifier: MIT
// The leaves of RegexPool that stand for large sets: literal texts and multiples of a number.
#include <algorithm>

#include "grammar/regex_pool.h"

namespace deepinfer {
namespace {

constexpr uint32_t kExponentMax = 400;
constexpr int kMantissaDecimals = 16;

uint64_t times_power_of_ten(uint64_t value, uint32_t power, uint64_t modulus) {
  uint64_t product = value % modulus;  // divisors are below 2^59: ten times as much has room
  for (uint32_t i = 0; i < power && product != 0; ++i) product = product * 10 % modulus;
  return product;
}

}  // namespace

// The digits so far without the fraction's trailing zeros, modulo the divisor. Source: value = digits * 10^(exponent -
// num_decimals), a multiple of divisor / 10^k exactly when digits * 10^(k + exponent - num_decimals) is one of divisor.
struct RegexPool::MultipleState {
  enum Phase : uint32_t { kDigits, kFraction, kSign, kExponent, kNegativeExponent, kBegin, kFirst };
  uint64_t rest = 0;
  uint32_t phase = kDigits, num_decimals = 0, num_zeros = 0, exponent = 0;

  // No exponent moves the point further than the mantissa's length (number_language.h), so a digit behind such a place
  // settles the matter.
  static uint32_t places_max(const DecimalDivisor& of) {
    return static_cast<uint32_t>(std::max(of.num_decimals, of.has_exponent ? kMantissaDecimals : 0));
  }

  // The next digit of the fraction, or of the exponent. False: no number that goes on so is a multiple.
  bool take_fraction_digit(uint32_t digit, const DecimalDivisor& of) {
    if (digit == 0) {
      num_zeros = std::min(num_zeros + 1, places_max(of) - num_decimals);
      return true;
    }
    rest = (times_power_of_ten(rest, num_zeros + 1, of.divisor) + digit) % of.divisor;
    num_decimals += num_zeros + 1;
    num_zeros = 0;
    return num_decimals <= places_max(of);
  }
  bool take_exponent_digit(uint32_t digit) {
    num_zeros = 0;
    exponent = exponent * 10 + digit;
    return exponent <= kExponentMax;
  }

  bool is_multiple(const DecimalDivisor& of, int64_t with_exponent) const {
    const int64_t power = int64_t{of.num_decimals} - num_decimals + with_exponent;
    // Below zero the last digit, which is not 0, stands behind the divisor's last place.
    return power >= 0 && times_power_of_ten(rest, static_cast<uint32_t>(power), of.divisor) == 0;
  }
  // Whether some digits still make a multiple. Behind "e" the largest exponent would, if any: ten times a multiple is
  // one. In the fraction of a number without exponent so many places are left, and so many zeros of them taken.
  bool has_hope(const DecimalDivisor& of) const {
    if (phase == kNegativeExponent) return is_multiple(of, -int64_t{exponent});
    if (phase == kSign || phase == kExponent) return is_multiple(of, kExponentMax);
    if (phase != kFraction || of.has_exponent) return true;
    const uint32_t num_left = places_max(of) - num_decimals, num_free = num_left - std::min(num_left, num_zeros);
    const uint64_t least = times_power_of_ten(rest, num_left, of.divisor);
    if (least == 0 || num_free >= 18) return true;  // a divisor has no more digits
    uint64_t num_values = 1;
    for (uint32_t i = 0; i < num_free; ++i) num_values *= 10;
    return of.divisor - least < num_values;
  }
};

RegexId RegexPool::any_of(std::vector<std::u32string> texts) {
  std::ranges::sort(texts);
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  if (texts.empty()) return kNone;
  if (texts.size() == 1 && texts[0].size() < 64) return text(texts[0]);
  tables_.push_back(std::move(texts));
  const auto table = static_cast<uint32_t>(tables_.size() - 1);
  return texts_node(table, 0, static_cast<uint32_t>(tables_[table].size()), 0);
}

RegexId RegexPool::texts_node(uint32_t table, uint32_t begin, uint32_t end, uint32_t depth) {
  if (begin == end) return kNone;
  const bool nullable = tables_[table][begin].size() == depth;
  if (nullable && end - begin == 1) return kEmpty;
  return intern({Kind::kTexts, nullable, true, table, begin, end, depth});
}

RegexId RegexPool::derive_texts(const Node& node, char32_t c) {
  const std::vector<std::u32string>& table = tables_[node.a];
  const size_t depth = node.d;
  const auto begin = table.begin() + node.b, end = table.begin() + node.c;
  const auto char_at = [&](const std::u32string& text) -> int64_t {
    return text.size() > depth ? static_cast<int64_t>(text[depth]) : -1;
  };
  const auto first = std::lower_bound(begin, end, int64_t{c},
                                      [&](const std::u32string& text, int64_t value) { return char_at(text) < value; });
  const auto last = std::upper_bound(first, end, int64_t{c},
                                     [&](int64_t value, const std::u32string& text) { return value < char_at(text); });
  return texts_node(node.a, static_cast<uint32_t>(first - table.begin()), static_cast<uint32_t>(last - table.begin()),
                    static_cast<uint32_t>(depth + 1));
}

RegexId RegexPool::multiple_of(DecimalDivisor divisor) {
  divisors_.push_back(divisor);
  MultipleState start;
  if (divisor.has_exponent) start.phase = MultipleState::kBegin;
  return multiple_node(static_cast<uint32_t>(divisors_.size() - 1), start);
}

RegexId RegexPool::without_exponents(RegexId id, RegexId from, RegexId to, RegexId below_not, bool& found) {
  if (id == from) {
    found = true;
    return to;
  }
  const Node node = nodes_[id];
  switch (node.kind) {
    case Kind::kMultiple: found = true; return divisors_[node.a].has_exponent ? kNone : id;
    case Kind::kNegated: {
      found = true;
      return negated(without_exponents(node.a, from, below_not, to, found));
    }
    case Kind::kEither:
    case Kind::kBoth: {
      std::vector<RegexId> parts = list_of(id);
      for (RegexId& part : parts) part = without_exponents(part, from, to, below_not, found);
      return node.kind == Kind::kEither ? either(std::move(parts)) : both(std::move(parts));
    }
    default: return id;
  }
}

RegexId RegexPool::multiple_node(uint32_t index, const MultipleState& state) {
  const DecimalDivisor divisor = divisors_[index];
  const int64_t exponent = state.phase == MultipleState::kNegativeExponent ? -int64_t{state.exponent} : state.exponent;
  const bool may_end = divisor.has_exponent
                           ? state.phase == MultipleState::kExponent || state.phase == MultipleState::kNegativeExponent
                           : state.phase <= MultipleState::kFraction;
  const bool is_multiple = may_end && state.is_multiple(divisor, exponent);
  return intern({Kind::kMultiple, is_multiple, false, index,
                 state.phase << 24 | state.num_decimals << 12 | state.num_zeros, state.exponent, state.rest});
}

RegexId RegexPool::derive_multiple(const Node& node, char32_t c) {
  MultipleState state{node.d, node.b >> 24, node.b >> 12 & 0xFFF, node.b & 0xFFF, node.c};
  const DecimalDivisor divisor = divisors_[node.a];
  const uint64_t modulus = divisor.divisor;
  const bool is_digit = c >= '0' && c <= '9', is_exponent = c == 'e' || c == 'E';
  if (is_exponent && !divisor.has_exponent) return kNone;
  const uint32_t digit = is_digit ? c - '0' : 0;
  switch (state.phase) {
    case MultipleState::kBegin:
      if (c == '-') break;
      if (digit == 0) return kNone;
      state.rest = digit % modulus;
      state.phase = MultipleState::kFirst;
      break;
    case MultipleState::kFirst:
      if (!is_exponent && c != '.') return kNone;
      state.phase = is_exponent ? MultipleState::kSign : MultipleState::kFraction;
      break;
    case MultipleState::kDigits:
      if (c == '-') break;
      if (is_digit) state.rest = (times_power_of_ten(state.rest, 1, modulus) + digit) % modulus;
      else if (c == '.') state.phase = MultipleState::kFraction;
      else return kNone;
      break;
    case MultipleState::kFraction:
      if (is_exponent) state.phase = MultipleState::kSign;
      else if (!is_digit || !state.take_fraction_digit(digit, divisor)) return kNone;
      break;
    case MultipleState::kSign:
      if (c == '+' || c == '-') {
        state.phase = c == '+' ? MultipleState::kExponent : MultipleState::kNegativeExponent;
        break;
      }
      state.phase = MultipleState::kExponent;
      [[fallthrough]];
    case MultipleState::kExponent:
    case MultipleState::kNegativeExponent:
      if (!is_digit || !state.take_exponent_digit(digit)) return kNone;
      break;
  }
  return state.has_hope(divisor) ? multiple_node(node.a, state) : kNone;
}

}  // namespace deepinfer
