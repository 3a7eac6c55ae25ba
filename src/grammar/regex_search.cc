// SPDX-License-Identifier: MIT
// Questions to RegexPool that look at more than one state: emptiness, live characters, shortest texts, saturation.
#include <algorithm>
#include <deque>
#include <unordered_set>

#include "grammar/regex_pool.h"

namespace deepinfer {
namespace {

constexpr size_t kSearchMax = 3'000;
constexpr size_t kRepresentativesMax = 2'048;

}  // namespace

// Points at which the derivative may change, for code points after which something is left.
void RegexPool::add_breaks(RegexId id, std::vector<char32_t>& breaks, int depth) const {
  const Node& node = nodes_[id];
  switch (node.kind) {
    case Kind::kNone:
    case Kind::kEmpty: return;
    case Kind::kChars:
      for (const CharSet::Span& span : sets_[node.a].spans()) {
        breaks.push_back(span.begin);
        breaks.push_back(span.end);
      }
      return;
    case Kind::kConcat:
      add_breaks(node.a, breaks, depth + 1);
      if (nodes_[node.a].nullable) add_breaks(node.b, breaks, depth + 1);
      return;
    case Kind::kEither:
    case Kind::kBoth:
      for (uint32_t i = node.a; i < node.b; ++i) add_breaks(lists_[i], breaks, depth + 1);
      return;
    case Kind::kNegated:
    case Kind::kRepeat: add_breaks(node.a, breaks, depth + 1); return;
    case Kind::kTexts:
      for (size_t i = node.b; i < node.c;) {
        const std::u32string& text = tables_[node.a][i];
        if (text.size() <= node.d) {
          ++i;
          continue;
        }
        const char32_t c = text[node.d];
        breaks.push_back(c);
        breaks.push_back(c + 1);
        const auto begin = tables_[node.a].begin() + static_cast<ptrdiff_t>(i), end = tables_[node.a].begin() + node.c;
        i = static_cast<size_t>(
            std::partition_point(begin, end, [&](const std::u32string& other) { return other[node.d] <= c; }) -
            tables_[node.a].begin());
      }
      return;
    case Kind::kMultiple:
      for (const char c : {'+', '-', '.', 'E', 'e'}) {
        breaks.push_back(static_cast<char32_t>(c));
        breaks.push_back(static_cast<char32_t>(c + 1));
      }
      for (char32_t c = '0'; c <= '9' + 1; ++c) breaks.push_back(c);
  }
}

// Sorted break points, first 0, last kEnd: all code points of [i, i+1) have one derivative.
std::vector<char32_t> RegexPool::representatives(RegexId id) const {
  std::vector<char32_t> breaks{0, 0xD800, 0xE000, CharSet::kEnd};
  add_breaks(id, breaks, 0);
  std::ranges::sort(breaks);
  breaks.erase(std::unique(breaks.begin(), breaks.end()), breaks.end());
  return breaks;
}

bool RegexPool::has_text(RegexId id) {
  const Node& node = nodes_[id];
  if (id == kNone) return false;
  if (node.simple || node.nullable) return true;
  if (const uint32_t known = has_text_.find(id); known != FlatMap::kAbsent) return known != 0;
  const bool result = search_text(id);
  if (has_text_.find(id) == FlatMap::kAbsent) has_text_.insert(id, result ? 1 : 0);
  return result;
}

bool RegexPool::search_text(RegexId start) {
  bool is_complete = true;
  std::vector<RegexId> stack{start};
  std::unordered_map<RegexId, RegexId> parents{{start, start}};
  // All states on the way to one with a text have one too.
  const auto remember_way = [&](RegexId id) {
    for (;; id = parents[id]) {
      if (has_text_.find(id) == FlatMap::kAbsent) has_text_.insert(id, 1);
      if (id == start) return true;
    }
  };
  while (!stack.empty()) {
    const RegexId id = stack.back();
    stack.pop_back();
    const uint32_t known = has_text_.find(id);
    if (nodes_[id].nullable || nodes_[id].simple || known == 1) return remember_way(id);
    if (known == 0) continue;
    if (parents.size() > kSearchMax || is_full_) return true;
    std::vector<char32_t> points = representatives(id);
    is_complete &= points.size() <= kRepresentativesMax;
    if (points.size() > kRepresentativesMax) points.resize(kRepresentativesMax);
    for (size_t i = points.size() - 1; i-- > 0;) {
      if (points[i] == 0xD800) continue;
      const RegexId next = derive(id, points[i]);
      if (next == kNone || !parents.emplace(next, id).second) continue;
      if (nodes_[next].nullable || nodes_[next].simple || has_text_.find(next) == 1) return remember_way(next);
      stack.push_back(next);
    }
  }
  if (!is_complete) return true;
  for (const auto& [id, parent] : parents)
    if (has_text_.find(id) == FlatMap::kAbsent) has_text_.insert(id, 0);
  return false;
}

const CharSet& RegexPool::live_chars(RegexId id) {
  std::unique_ptr<CharSet>& slot = live_[id];
  if (slot) return *slot;
  const std::vector<char32_t> points = representatives(id);
  std::vector<CharSet::Span> spans;
  CharSet set;
  for (size_t i = 0; i + 1 < points.size(); ++i) {
    if (points[i] == 0xD800 || !has_text(derive(id, points[i]))) continue;
    if (!spans.empty() && spans.back().end == points[i]) spans.back().end = points[i + 1];
    else spans.push_back({points[i], points[i + 1]});
  }
  set = CharSet::of_sorted(std::move(spans));
  std::unique_ptr<CharSet>& again = live_[id];
  again = std::make_unique<CharSet>(std::move(set));
  return *again;
}

RegexId RegexPool::saturated(RegexId id, uint32_t cap) {
  const Node node = nodes_[id];
  if (node.kind < Kind::kConcat || node.kind > Kind::kRepeat || id == kAny) return id;
  const uint64_t key = uint64_t{cap} << 32 | id;
  if (const uint32_t known = saturated_.find(key); known != FlatMap::kAbsent) return known;
  RegexId result = id;
  if (node.kind == Kind::kConcat) {
    const RegexId first = saturated(node.a, cap);
    result = concat(first, saturated(node.b, cap));
  } else if (node.kind == Kind::kRepeat) {
    const RegexId inner = saturated(node.a, cap);
    const uint32_t max = node.c > cap ? kInfinite : node.c;
    result = repeat(inner, std::min(node.b, max == kInfinite ? cap + 1 : max), max);
  } else if (node.kind == Kind::kNegated) {
    result = id;
  } else {
    std::vector<RegexId> parts = list_of(id);
    for (RegexId& part : parts) part = saturated(part, cap);
    result = node.kind == Kind::kEither ? either(std::move(parts)) : both(std::move(parts));
  }
  if (saturated_.find(key) == FlatMap::kAbsent) saturated_.insert(key, result);
  return result;
}

uint32_t RegexPool::shortest(RegexId id) {
  if (id == kNone) return kInfinite;
  if (nodes_[id].nullable) return 0;
  if (const auto known = shortest_.find(id); known != shortest_.end()) return known->second;
  const Node node = nodes_[id];
  uint64_t result = kInfinite;
  if (node.kind == Kind::kChars) {
    result = 1;
  } else if (node.kind == Kind::kConcat) {
    result = uint64_t{shortest(node.a)} + shortest(node.b);
  } else if (node.kind == Kind::kRepeat) {
    result = uint64_t{shortest(node.a)} * node.b;
  } else if (node.kind == Kind::kEither) {
    for (const RegexId part : list_of(id)) result = std::min<uint64_t>(result, shortest(part));
  } else if (node.kind == Kind::kTexts) {
    for (uint32_t i = node.b; i < node.c; ++i) result = std::min<uint64_t>(result, tables_[node.a][i].size() - node.d);
  } else {
    std::deque<std::pair<RegexId, uint32_t>> queue{{id, 0}};
    std::unordered_set<RegexId> seen{id};
    while (!queue.empty() && seen.size() < kSearchMax && result == kInfinite) {
      const auto [at, distance] = queue.front();
      queue.pop_front();
      const std::vector<char32_t> points = representatives(at);
      for (size_t i = 0; i + 1 < points.size() && i < kRepresentativesMax; ++i) {
        if (points[i] == 0xD800) continue;
        const RegexId next = derive(at, points[i]);
        if (next == kNone || !seen.insert(next).second) continue;
        if (nodes_[next].nullable) {
          result = distance + 1;
          break;
        }
        queue.emplace_back(next, distance + 1);
      }
    }
  }
  const auto clipped = static_cast<uint32_t>(std::min<uint64_t>(result, kInfinite));
  shortest_[id] = clipped;
  return clipped;
}

char32_t RegexPool::shortest_step(RegexId id) {
  const std::vector<char32_t> points = representatives(id);
  char32_t best = 0;
  uint32_t best_left = kInfinite;
  for (size_t i = 0; i + 1 < points.size(); ++i) {
    if (points[i] == 0xD800) continue;
    // A printable character of the range reads better than its first one.
    const char32_t c = points[i] < ' ' && points[i + 1] > 'a' ? U'a' : points[i];
    const uint32_t left = shortest(derive(id, c));
    if (left < best_left) {
      best = c;
      best_left = left;
    }
  }
  return best;
}

bool RegexPool::enumerate(RegexId id, size_t max, std::vector<std::u32string>& out) {
  std::vector<std::pair<RegexId, std::u32string>> stack{{id, U""}};
  for (size_t steps = 0; !stack.empty(); ++steps) {
    auto [at, text] = std::move(stack.back());
    stack.pop_back();
    if (text.size() > 64 || steps > 64 * max + 64) return false;
    if (nodes_[at].nullable) out.push_back(text);
    if (out.size() > max) return false;
    const CharSet live = live_chars(at);
    for (const CharSet::Span& span : live.spans()) {
      if (span.end - span.begin > max) return false;
      for (char32_t c = span.begin; c < span.end; ++c) stack.emplace_back(derive(at, c), text + c);
    }
  }
  return true;
}

}  // namespace deepinfer
