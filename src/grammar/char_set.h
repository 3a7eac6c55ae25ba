// SPDX-License-Identifier: MIT
// A set of Unicode code points as sorted, disjoint, half-open ranges. Surrogates are never members: no text holds them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace deepinfer {

class CharSet {
 public:
  struct Span {
    char32_t begin, end;
    bool operator==(const Span&) const = default;
  };
  static constexpr char32_t kEnd = 0x110000;

  CharSet() = default;
  static CharSet all();
  static CharSet of(char32_t code_point) { return range(code_point, code_point + 1); }
  static CharSet range(char32_t begin, char32_t end);
  static CharSet of_sorted(std::vector<Span> spans);  // sorted and disjoint; surrogates are taken out
  // General category by its short or long name ("L", "Lu", "Letter", "Nd", "ASCII", "Any"); invalid_argument for
  // others.
  static Result<CharSet> property(std::string_view name);

  void add(char32_t begin, char32_t end);
  void add(const CharSet& other);
  CharSet complement() const;
  CharSet intersection(const CharSet& other) const;
  // Adds the other case of ASCII and of code points with a simple one-to-one mapping.
  CharSet case_folded() const;

  bool contains(char32_t code_point) const;
  bool is_empty() const { return spans_.empty(); }
  const std::vector<Span>& spans() const { return spans_; }
  bool operator==(const CharSet&) const = default;

 private:
  void normalise();
  std::vector<Span> spans_;
};

}  // namespace deepinfer
