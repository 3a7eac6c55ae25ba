// SPDX-License-Identifier: MIT
// Questions to RegexPool that look at more than one state: emptiness, live characters, shortest texts, saturation.
#include <algorithm>
#include <array>
#include <bit>
#include <deque>
#include <queue>
#include <unordered_set>

#include "grammar/regex_pool.h"

namespace deepinfer {
namespace {

constexpr size_t kSearchMax = 3'000;
constexpr uint32_t kDistanceMax = 1u << 30;
constexpr size_t kRepresentativesMax = 2'048;

}  // namespace

// Alternatives name the same ASCII characters again and again.
struct RegexPool::Breaks {
  std::array<uint64_t, 2> ascii{};
  std::vector<char32_t> wide;
  size_t num_added = 0;
  void add(char32_t c) {
    ++num_added;
    if (c < 128) ascii[c >> 6] |= uint64_t{1} << (c & 63);
    else wide.push_back(c);
  }
};

// Points at which the derivative may change, for code points after which something is left.
void RegexPool::add_breaks(RegexId id, Breaks& breaks) const {
  const Node& node = nodes_[id];
  switch (node.kind) {
    case Kind::kNone:
    case Kind::kEmpty: return;
    case Kind::kChars:
      for (const CharSet::Span& span : sets_[node.a].spans()) {
        breaks.add(span.begin);
        breaks.add(span.end);
      }
      return;
    case Kind::kConcat:
      add_breaks(node.a, breaks);
      if (nodes_[node.a].nullable) add_breaks(node.b, breaks);
      return;
    case Kind::kEither:
    case Kind::kBoth:
      for (uint32_t i = node.a; i < node.b; ++i) add_breaks(lists_[i], breaks);
      return;
    case Kind::kNegated:
    case Kind::kRepeat: add_breaks(node.a, breaks); return;
    case Kind::kTexts:
      for (size_t i = node.b; i < node.c;) {
        const std::u32string& text = tables_[node.a][i];
        if (text.size() <= node.d) {
          ++i;
          continue;
        }
        const char32_t c = text[node.d];
        breaks.add(c);
        breaks.add(c + 1);
        const auto begin = tables_[node.a].begin() + static_cast<ptrdiff_t>(i), end = tables_[node.a].begin() + node.c;
        i = static_cast<size_t>(
            std::partition_point(begin, end, [&](const std::u32string& other) { return other[node.d] <= c; }) -
            tables_[node.a].begin());
      }
      return;
    case Kind::kMultiple:
      for (const char c : {'+', '-', '.', 'E', 'e'}) {
        breaks.add(static_cast<char32_t>(c));
        breaks.add(static_cast<char32_t>(c + 1));
      }
      for (char32_t c = '0'; c <= '9' + 1; ++c) breaks.add(c);
  }
}

// Sorted break points, first 0, last kEnd: all code points of [i, i+1) have one derivative.
std::vector<char32_t> RegexPool::representatives(RegexId id) {
  Breaks breaks;
  for (const char32_t c : {char32_t{0}, char32_t{0xD800}, char32_t{0xE000}, CharSet::kEnd}) breaks.add(c);
  add_breaks(id, breaks);
  std::ranges::sort(breaks.wide);
  breaks.wide.erase(std::unique(breaks.wide.begin(), breaks.wide.end()), breaks.wide.end());
  std::vector<char32_t> points;
  for (uint32_t word = 0; word < breaks.ascii.size(); ++word)
    for (uint64_t bits = breaks.ascii[word]; bits != 0; bits &= bits - 1)
      points.push_back(64 * word + static_cast<uint32_t>(std::countr_zero(bits)));
  points.insert(points.end(), breaks.wide.begin(), breaks.wide.end());
  work_ += breaks.num_added / 4;
  return points;
}

std::vector<char32_t> RegexPool::class_ends(RegexId id) {
  std::vector<char32_t> ends = representatives(id);
  ends.erase(ends.begin());
  return ends;
}

bool RegexPool::has_text(RegexId id) {
  const Node& node = nodes_[id];
  if (id == kNone) return false;
  if (node.simple || node.nullable) return true;
  if (const uint32_t known = has_text_.find(id); known != FlatMap::kAbsent) return known != 0;
  bool result = false;
  if (node.kind == Kind::kEither) {
    for (const RegexId part : list_of(id)) result = result || has_text(part);
  } else {
    result = has_text_nearby(id) || search_text(id);
  }
  if (has_text_.find(id) == FlatMap::kAbsent) has_text_.insert(id, result ? 1 : 0);
  return result;
}

// A lower bound on the length of the shortest text: cheap, and good at telling which way leads out.
uint32_t RegexPool::distance(RegexId id) {
  const Node node = nodes_[id];
  if (node.nullable) return 0;
  if (node.kind == Kind::kChars || node.kind == Kind::kNegated || node.kind == Kind::kMultiple) return 1;
  if (const uint32_t known = distances_.find(id); known != FlatMap::kAbsent) return known;
  uint64_t result = 0;
  switch (node.kind) {
    case Kind::kConcat: result = uint64_t{distance(node.a)} + distance(node.b); break;
    case Kind::kRepeat: result = uint64_t{distance(node.a)} * node.b; break;
    case Kind::kEither:
      result = kDistanceMax;
      for (uint32_t i = node.a; i < node.b; ++i) result = std::min<uint64_t>(result, distance(lists_[i]));
      break;
    case Kind::kBoth:
      for (uint32_t i = node.a; i < node.b; ++i) result = std::max<uint64_t>(result, distance(lists_[i]));
      break;
    case Kind::kTexts:
      result = kDistanceMax;
      for (uint32_t i = node.b; i < std::min(node.c, node.b + 64); ++i)
        result = std::min<uint64_t>(result, tables_[node.a][i].size() - node.d);
      break;
    default: break;
  }
  const auto clipped = static_cast<uint32_t>(std::min<uint64_t>(result, kDistanceMax));
  if (distances_.find(id) == FlatMap::kAbsent) distances_.insert(id, clipped);
  return clipped;
}

// Most states are one character away from where the answer is known.
bool RegexPool::has_text_nearby(RegexId id) {
  const std::vector<char32_t> points = representatives(id);
  if (points.size() > kRepresentativesMax) return false;
  for (size_t i = points.size() - 1; i-- > 0;) {
    if (points[i] == 0xD800) continue;
    const RegexId next = derive(id, points[i]);
    if (next != kNone && (nodes_[next].nullable || nodes_[next].simple || has_text_.find(next) == 1)) return true;
  }
  return false;
}

bool RegexPool::search_text(RegexId start) {
  bool is_complete = true;
  // Nearest first, the latest of equals.
  struct Open {
    uint32_t distance, order;
    RegexId id;
    bool operator<(const Open& other) const {
      return distance != other.distance ? distance > other.distance : order < other.order;
    }
  };
  std::priority_queue<Open> open;
  open.push({0, 0, start});
  std::unordered_map<RegexId, RegexId> parents{{start, start}};
  // All states on the way to one with a text have one too.
  const auto remember_way = [&](RegexId id) {
    for (;; id = parents[id]) {
      if (has_text_.find(id) == FlatMap::kAbsent) has_text_.insert(id, 1);
      if (id == start) return true;
    }
  };
  while (!open.empty()) {
    const RegexId id = open.top().id;
    open.pop();
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
      open.push({distance(next), static_cast<uint32_t>(parents.size()), next});
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

void RegexPool::explore(RegexId id, uint64_t work_max) {
  if (nodes_[id].simple || live_.contains(id)) return;  // nothing to search for, or done before
  const uint64_t end = work_ + std::min(work_max, UINT64_MAX - work_);
  std::vector<RegexId> met{id};
  std::unordered_set<RegexId> seen{id};
  for (size_t i = 0; i < met.size(); ++i) {
    for (const char32_t point : representatives(met[i])) {
      if (work_ > end || !goes_on()) return;
      if (point == 0xD800 || point == CharSet::kEnd) continue;
      const RegexId next = derive(met[i], point);
      if (has_text(next) && seen.insert(next).second) met.push_back(next);
    }
    live_chars(met[i]);
  }
}

// An upper bound on the shortest text of every derivative that is not empty; kInfinite when none is known.
uint32_t RegexPool::longest_way_out(RegexId id) {
  const Node node = nodes_[id];
  const auto plus = [](uint64_t a, uint64_t b) { return static_cast<uint32_t>(std::min<uint64_t>(a + b, kInfinite)); };
  switch (node.kind) {
    case Kind::kNone:
    case Kind::kEmpty: return 0;
    case Kind::kChars: return 1;
    case Kind::kConcat: return std::max(plus(longest_way_out(node.a), shortest(node.b)), longest_way_out(node.b));
    case Kind::kEither: {
      uint32_t most = 0;
      for (const RegexId part : list_of(id)) most = std::max(most, longest_way_out(part));
      return most;
    }
    case Kind::kRepeat: return plus(longest_way_out(node.a), uint64_t{shortest(node.a)} * node.b);
    case Kind::kTexts: {
      size_t most = 0;
      for (uint32_t i = node.b; i < node.c; ++i) most = std::max(most, tables_[node.a][i].size());
      return static_cast<uint32_t>(most);
    }
    default: return kInfinite;
  }
}

// An intersection may lose its counters only if they cannot make it empty within the next `cap` characters: counters of
// classes alone keep their distances, and beside one other language the counter must leave room for its way out.
bool RegexPool::may_saturate(RegexId id, uint32_t cap) {
  uint32_t least = kInfinite, most_needed = 0, way_out = 0;
  size_t num_others = 0;
  for (const RegexId part : list_of(id)) {
    const Node node = nodes_[part];
    if (node.kind == Kind::kRepeat && nodes_[node.a].kind == Kind::kChars) {
      least = std::min(least, node.c);
      most_needed = std::max(most_needed, node.b);
      continue;
    }
    if (++num_others > 1) return false;
    way_out = longest_way_out(part);
  }
  if (num_others == 0) return true;
  if (way_out == kInfinite || most_needed > cap) return false;
  return least == kInfinite || uint64_t{least} >= uint64_t{cap} + most_needed + 2 * uint64_t{way_out};
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
  } else if (node.kind == Kind::kBoth && may_saturate(id, cap)) {
    std::vector<RegexId> parts = list_of(id);
    for (RegexId& part : parts)
      if (nodes_[part].kind == Kind::kRepeat) part = saturated(part, cap);
    result = both(std::move(parts));
  } else if (node.kind == Kind::kEither) {
    std::vector<RegexId> parts = list_of(id);
    for (RegexId& part : parts) part = saturated(part, cap);
    result = either(std::move(parts));
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
