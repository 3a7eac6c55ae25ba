// SPDX-License-Identifier: MIT
#include "grammar/regex_walk.h"

#include <algorithm>

#include "grammar/token_index.h"

namespace deepinfer {

RegexWalk::Row* RegexWalk::row_of(RegexId regex) {
  const auto [at, is_new] = row_ids_.emplace(regex, nullptr);
  if (!is_new) return at->second;
  auto row = std::make_unique<Row>();
  row->regex = regex;
  row->ascii.fill(unknown());
  for (const char32_t end : pool_.class_ends(regex)) row->classes.push_back({end, nullptr, false});
  rows_.push_back(std::move(row));
  return at->second = rows_.back().get();
}

RegexWalk::Row* RegexWalk::next_of(Row& row, size_t class_idx) {
  Class& of = row.classes[class_idx];
  const char32_t begin = class_idx == 0 ? 0 : row.classes[class_idx - 1].end;
  if (!of.is_known) {
    of.is_known = has_worked_ = true;
    if (begin != 0xD800) {
      const RegexId left = pool_.derive(row.regex, begin);
      if (pool_.has_text(left)) of.next = row_of(left);
    }
    for (char32_t c = begin; c < std::min(of.end, kAscii); ++c) row.ascii[c] = of.next;
  }
  return of.next;
}

RegexWalk::Row* RegexWalk::step_class(Row& row, char32_t c) {
  const auto at = static_cast<size_t>(std::ranges::upper_bound(row.classes, c, {}, &Class::end) - row.classes.begin());
  Row* const next = next_of(row, at);
  row.begin = at == 0 ? 0 : row.classes[at - 1].end;
  row.end = row.classes[at].end;
  row.next = next;
  return next;
}

bool RegexWalk::find_wide(Row& row) {
  bool any = false;
  for (size_t i = row.classes.size(); i-- > 0 && !any && row.classes[i].end > kAscii;) any = next_of(row, i) != nullptr;
  row.has_wide = any ? 1 : 0;
  return any;
}

// What lies behind the row is looked at, nearest first, until a plain character leads nowhere: patterns that are
// searched for, or must not be found, come back to few states, and are far from what they forbid. All states of a
// closed set are safe for ever.
void RegexWalk::find_safe(Row& row) {
  const std::vector<CharSet::Span>& plain = TokenIndex::plain_chars().spans();
  std::vector<std::pair<Row*, uint32_t>> met{{&row, 0}};  // with the characters up to them
  row.search = ++search_;
  uint32_t least = RegexPool::kInfinite;
  bool is_cut = false;
  const auto visit = [&](Row& from, size_t class_idx, uint32_t num_chars) {
    const char32_t begin = class_idx == 0 ? 0 : from.classes[class_idx - 1].end;
    const auto span = std::ranges::upper_bound(plain, begin, {}, &CharSet::Span::end);
    if (begin == 0xD800 || span == plain.end() || span->begin >= from.classes[class_idx].end) return;
    is_cut |= num_looks_ > kLooksMax;
    const uint64_t work = pool_.work();
    Row* const next = is_cut ? nullptr : next_of(from, class_idx);
    num_looks_ += 1 + pool_.work() - work;
    if (next == nullptr) {
      least = num_chars;
    } else if (next->knows_safe) {
      if (next->num_safe != RegexPool::kInfinite) least = std::min(least, num_chars + 1 + next->num_safe);
    } else if (next->search != search_) {
      if (met.size() == kSafeRowsMax) {
        least = std::min(least, num_chars + 1);
      } else {
        next->search = search_;
        met.emplace_back(next, num_chars + 1);
      }
    }
  };
  for (size_t i = 0; i < met.size() && met[i].second < least; ++i) {
    const auto [from, num_chars] = met[i];
    for (size_t k = 0; k < from->classes.size() && num_chars < least; ++k) visit(*from, k, num_chars);
  }
  if (least == RegexPool::kInfinite)
    for (const auto& [safe, num_chars] : met) safe->num_safe = least;
  row.num_safe = least;
  for (const auto& [safe, num_chars] : met) safe->knows_safe |= least == RegexPool::kInfinite;
  row.knows_safe |= !is_cut;
}

void RegexWalk::find_absorbed(Row& row) {
  row.knows_absorbed = true;
  const RegexPool::Absorbed absorbed = pool_.absorbed(row.regex);
  row.num_absorbed = absorbed.count;
  for (size_t kind = 0; absorbed.count > 0 && kind < CharTrie::kNumKinds; ++kind) {
    const CharSet& chars = CharTrie::kinds()[kind];
    if (absorbed.chars.intersection(chars) == chars) row.absorbed_kinds |= static_cast<uint16_t>(1u << kind);
  }
}

}  // namespace deepinfer
