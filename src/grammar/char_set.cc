// SPDX-License-Identifier: MIT
#include "grammar/char_set.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <string>
#include <utility>

namespace deepinfer {
namespace {

constexpr char32_t kSurrogateBegin = 0xD800, kSurrogateEnd = 0xE000;

struct CategoryName {
  std::string_view short_name, long_name;
};
// In the order of utf8proc_category_t, which starts at Cn.
constexpr std::array<CategoryName, 30> kCategories = {{{"Cn", "Unassigned"},
                                                       {"Lu", "Uppercase_Letter"},
                                                       {"Ll", "Lowercase_Letter"},
                                                       {"Lt", "Titlecase_Letter"},
                                                       {"Lm", "Modifier_Letter"},
                                                       {"Lo", "Other_Letter"},
                                                       {"Mn", "Nonspacing_Mark"},
                                                       {"Mc", "Spacing_Mark"},
                                                       {"Me", "Enclosing_Mark"},
                                                       {"Nd", "Decimal_Number"},
                                                       {"Nl", "Letter_Number"},
                                                       {"No", "Other_Number"},
                                                       {"Pc", "Connector_Punctuation"},
                                                       {"Pd", "Dash_Punctuation"},
                                                       {"Ps", "Open_Punctuation"},
                                                       {"Pe", "Close_Punctuation"},
                                                       {"Pi", "Initial_Punctuation"},
                                                       {"Pf", "Final_Punctuation"},
                                                       {"Po", "Other_Punctuation"},
                                                       {"Sm", "Math_Symbol"},
                                                       {"Sc", "Currency_Symbol"},
                                                       {"Sk", "Modifier_Symbol"},
                                                       {"So", "Other_Symbol"},
                                                       {"Zs", "Space_Separator"},
                                                       {"Zl", "Line_Separator"},
                                                       {"Zp", "Paragraph_Separator"},
                                                       {"Cc", "Control"},
                                                       {"Cf", "Format"},
                                                       {"Cs", "Surrogate"},
                                                       {"Co", "Private_Use"}}};
constexpr std::array<std::pair<std::string_view, char>, 9> kGroups = {{{"Letter", 'L'},
                                                                       {"Mark", 'M'},
                                                                       {"Number", 'N'},
                                                                       {"Punctuation", 'P'},
                                                                       {"punct", 'P'},
                                                                       {"Symbol", 'S'},
                                                                       {"Separator", 'Z'},
                                                                       {"Other", 'C'},
                                                                       {"Combining_Mark", 'M'}}};

bool is_wanted(size_t category, char group, std::string_view name) {
  const CategoryName& known = kCategories[category];
  return group != 0 ? known.short_name[0] == group : known.short_name == name || known.long_name == name;
}

}  // namespace

CharSet CharSet::all() { return range(0, kEnd); }

CharSet CharSet::range(char32_t begin, char32_t end) {
  CharSet set;
  set.add(begin, end);
  return set;
}

CharSet CharSet::of_sorted(std::vector<Span> spans) {
  CharSet set;
  set.spans_ = std::move(spans);
  set.normalise();
  return set;
}

Result<CharSet> CharSet::property(std::string_view name) {
  if (name == "Any") return all();
  if (name == "ASCII") return range(0, 0x80);
  for (const std::string_view prefix : {"General_Category=", "gc="})
    if (name.starts_with(prefix)) name.remove_prefix(prefix.size());
  char group = 0;
  if (name.size() == 1 && std::string_view("LMNPSZC").find(name[0]) != std::string_view::npos) group = name[0];
  for (const auto& [long_name, letter] : kGroups)
    if (name == long_name) group = letter;
  if (name == "digit") name = "Nd";
  bool is_known = group != 0;
  for (size_t i = 0; i < kCategories.size(); ++i) is_known |= is_wanted(i, 0, name);
  if (!is_known)
    return invalid_argument("Unicode property \"" + std::string(name) + "\" is not supported, only general categories");
  CharSet set;
  for (char32_t c = 0; c < kEnd; ++c) {
    const auto category = static_cast<size_t>(utf8proc_category(static_cast<utf8proc_int32_t>(c)));
    if (category >= kCategories.size() || !is_wanted(category, group, name)) continue;
    if (!set.spans_.empty() && set.spans_.back().end == c) {
      set.spans_.back().end = c + 1;
    } else {
      set.spans_.push_back({c, c + 1});
    }
  }
  set.normalise();
  return set;
}

void CharSet::add(char32_t begin, char32_t end) {
  if (begin >= end) return;
  spans_.push_back({begin, std::min(end, kEnd)});
  normalise();
}

void CharSet::add(const CharSet& other) {
  spans_.insert(spans_.end(), other.spans_.begin(), other.spans_.end());
  normalise();
}

void CharSet::normalise() {
  std::vector<Span> cut;
  for (const Span& span : spans_) {
    if (span.begin < kSurrogateBegin) cut.push_back({span.begin, std::min(span.end, kSurrogateBegin)});
    if (span.end > kSurrogateEnd) cut.push_back({std::max(span.begin, kSurrogateEnd), span.end});
  }
  std::ranges::sort(cut, {}, &Span::begin);
  spans_.clear();
  for (const Span& span : cut) {
    if (!spans_.empty() && span.begin <= spans_.back().end) {
      spans_.back().end = std::max(spans_.back().end, span.end);
    } else {
      spans_.push_back(span);
    }
  }
}

CharSet CharSet::complement() const {
  CharSet set;
  char32_t at = 0;
  for (const Span& span : spans_) {
    if (span.begin > at) set.spans_.push_back({at, span.begin});
    at = span.end;
  }
  if (at < kEnd) set.spans_.push_back({at, kEnd});
  set.normalise();
  return set;
}

CharSet CharSet::intersection(const CharSet& other) const {
  CharSet set;
  for (size_t i = 0, j = 0; i < spans_.size() && j < other.spans_.size();) {
    const char32_t begin = std::max(spans_[i].begin, other.spans_[j].begin);
    const char32_t end = std::min(spans_[i].end, other.spans_[j].end);
    if (begin < end) set.spans_.push_back({begin, end});
    spans_[i].end < other.spans_[j].end ? ++i : ++j;
  }
  return set;
}

CharSet CharSet::case_folded() const {
  CharSet set = *this;
  for (const Span& span : spans_) {
    if (span.end - span.begin > 0x3000) continue;  // a range that wide holds both cases of what it covers
    for (char32_t c = span.begin; c < span.end; ++c) {
      const auto lower = static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
      const auto upper = static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
      if (lower != c) set.spans_.push_back({lower, lower + 1});
      if (upper != c) set.spans_.push_back({upper, upper + 1});
    }
  }
  set.normalise();
  return set;
}

bool CharSet::contains(char32_t code_point) const {
  auto after = std::ranges::upper_bound(spans_, code_point, {}, &Span::begin);
  return after != spans_.begin() && code_point < std::prev(after)->end;
}

}  // namespace deepinfer
