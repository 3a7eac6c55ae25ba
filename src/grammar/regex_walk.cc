// SPDX-License-Identifier: MIT
#include "grammar/regex_walk.h"

#include <algorithm>

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
