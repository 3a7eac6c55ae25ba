// SPDX-License-Identifier: MIT
#include "grammar/regex_pool.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "base/range.h"

namespace deepinfer {
namespace {

constexpr size_t kNodesMax = size_t{3} << 20;
constexpr size_t kNodesPerLook = 4096;               // made between two questions whether to go on
constexpr size_t kDerivativesMax = size_t{1} << 20;  // places of a table; 16 MB

uint64_t mix(uint64_t h, uint64_t v) {
  h ^= v + 0x9E3779B97F4A7C15ull + (h << 6) + (h >> 2);
  return h * 0xBF58476D1CE4E5B9ull;
}

uint32_t add_counts(uint32_t a, uint32_t b) {
  const uint64_t sum = uint64_t{a} + b;
  return a == RegexPool::kInfinite || b == RegexPool::kInfinite || sum >= RegexPool::kInfinite
             ? RegexPool::kInfinite
             : static_cast<uint32_t>(sum);
}

}  // namespace

RegexPool::RegexPool() : derivatives_(kDerivativesMax) {
  nodes_.push_back({Kind::kNone, false, true});
  nodes_.push_back({Kind::kEmpty, true, true});
  sets_.push_back(CharSet::all());
  nodes_.push_back({Kind::kRepeat, true, true, 3, 0, kInfinite, 0});
  nodes_.push_back({Kind::kChars, false, true, 0, 0, 0, 0});
  for (RegexId id = 0; id < nodes_.size(); ++id) interned_.insert(hash(nodes_[id]), id);
}

size_t RegexPool::hash(const Node& node) const {
  uint64_t h = mix(static_cast<uint64_t>(node.kind), node.d);
  if (node.kind == Kind::kEither || node.kind == Kind::kBoth) {
    for (uint32_t i = node.a; i < node.b; ++i) h = mix(h, lists_[i]);
    return h;
  }
  return mix(mix(mix(h, node.a), node.b), node.c);
}

RegexId RegexPool::intern(const Node& node) {
  ++work_;
  const size_t h = hash(node);
  const bool is_list = node.kind == Kind::kEither || node.kind == Kind::kBoth;
  const uint32_t known = interned_.find(h, [&](uint32_t id) {
    const Node& other = nodes_[id];
    if (other.kind != node.kind || other.d != node.d) return false;
    if (!is_list) return other.a == node.a && other.b == node.b && other.c == node.c;
    return other.b - other.a == node.b - node.a &&
           std::equal(lists_.begin() + other.a, lists_.begin() + other.b, lists_.begin() + node.a);
  });
  if (known != FlatMap::kAbsent) return known;
  if (nodes_.size() >= kNodesMax) is_full_ = true;
  if (is_full_ || (nodes_.size() % kNodesPerLook == 0 && !goes_on())) return kNone;
  nodes_.push_back(node);
  interned_.insert(h, static_cast<RegexId>(nodes_.size() - 1));
  return static_cast<RegexId>(nodes_.size() - 1);
}

RegexId RegexPool::intern_list(Kind kind, const std::vector<RegexId>& parts) {
  const auto begin = static_cast<uint32_t>(lists_.size());
  bool any = false, all = true, simple = kind == Kind::kEither;
  for (const RegexId part : parts) {
    any |= nodes_[part].nullable;
    all &= nodes_[part].nullable;
    simple &= nodes_[part].simple;
  }
  lists_.insert(lists_.end(), parts.begin(), parts.end());
  const size_t before = nodes_.size();
  const RegexId id =
      intern({kind, kind == Kind::kEither ? any : all, simple, begin, static_cast<uint32_t>(lists_.size()), 0, 0});
  if (nodes_.size() == before) lists_.resize(begin);
  return id;
}

std::vector<RegexId> RegexPool::list_of(RegexId id) const {
  return {lists_.begin() + nodes_[id].a, lists_.begin() + nodes_[id].b};
}

RegexId RegexPool::chars(const CharSet& set) {
  if (set.is_empty()) return kNone;
  if (set == sets_[0]) return 3;
  const std::string key(reinterpret_cast<const char*>(set.spans().data()), set.spans().size() * sizeof(CharSet::Span));
  const auto [at, is_new] = set_ids_.emplace(key, static_cast<uint32_t>(sets_.size()));
  if (is_new) sets_.push_back(set);
  return intern({Kind::kChars, false, true, at->second, 0, 0, 0});
}

RegexId RegexPool::text(std::u32string_view text) {
  RegexId id = kEmpty;
  for (size_t i = text.size(); i-- > 0;) id = concat(chars(CharSet::of(text[i])), id);
  return id;
}

RegexId RegexPool::concat(RegexId a, RegexId b) {
  if (a == kNone || b == kNone) return kNone;
  if (a == kEmpty) return b;
  if (b == kEmpty) return a;
  std::vector<RegexId> firsts;
  while (nodes_[a].kind == Kind::kConcat) {
    firsts.push_back(nodes_[a].a);
    a = nodes_[a].b;
  }
  firsts.push_back(a);
  for (size_t i = firsts.size(); i-- > 0;) {
    const RegexId first = firsts[i];
    const Node left = nodes_[first];
    const Node right = nodes_[b];
    const RegexId next = right.kind == Kind::kConcat ? right.a : b;
    const Node after = nodes_[next];
    if (left.kind == Kind::kRepeat && after.kind == Kind::kRepeat && left.a == after.a) {
      const RegexId merged = repeat(left.a, add_counts(left.b, after.b), add_counts(left.c, after.c));
      b = right.kind == Kind::kConcat ? concat(merged, right.b) : merged;
      continue;
    }
    b = intern({Kind::kConcat, left.nullable && right.nullable, left.simple && right.simple, first, b, 0, 0});
  }
  return b;
}

void RegexPool::merge_repeats(std::vector<RegexId>& parts) {
  // x{a,b} | x{c,d} is one counter when the ranges touch. Such pairs arise when a loop is entered in several ways.
  std::vector<RegexId> repeats;
  for (const RegexId part : parts)
    if (nodes_[part].kind == Kind::kRepeat) repeats.push_back(part);
  if (repeats.size() < 2) return;
  std::ranges::sort(repeats, [&](RegexId x, RegexId y) {
    return std::pair(nodes_[x].a, nodes_[x].b) < std::pair(nodes_[y].a, nodes_[y].b);
  });
  std::erase_if(parts, [&](RegexId part) { return nodes_[part].kind == Kind::kRepeat; });
  Node current = nodes_[repeats[0]];
  for (size_t i = 1; i < repeats.size(); ++i) {
    const Node next = nodes_[repeats[i]];
    if (next.a == current.a && (current.c == kInfinite || next.b <= current.c + 1)) {
      current.c = std::max(current.c, next.c);
    } else {
      parts.push_back(repeat(current.a, current.b, current.c));
      current = next;
    }
  }
  parts.push_back(repeat(current.a, current.b, current.c));
}

RegexId RegexPool::either(std::vector<RegexId> parts) {
  std::vector<RegexId> flat;
  CharSet set;
  for (const RegexId part : parts) {
    const Node& node = nodes_[part];
    if (part == kAny) return kAny;
    if (node.kind == Kind::kEither) {
      for (uint32_t i = node.a; i < node.b; ++i) {
        const Node& inner = nodes_[lists_[i]];
        if (inner.kind == Kind::kChars) set.add(sets_[inner.a]);
        else flat.push_back(lists_[i]);
      }
    } else if (node.kind == Kind::kChars) {
      set.add(sets_[node.a]);
    } else if (part != kNone) {
      flat.push_back(part);
    }
  }
  if (!set.is_empty()) flat.push_back(chars(set));
  merge_repeats(flat);
  std::ranges::sort(flat);
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (std::ranges::any_of(flat, [&](RegexId x) { return x != kEmpty && nodes_[x].nullable; })) std::erase(flat, kEmpty);
  for (const RegexId part : flat) {
    if (part == kAny) return kAny;
    if (nodes_[part].kind == Kind::kNegated && std::ranges::binary_search(flat, nodes_[part].a)) return kAny;
  }
  if (flat.empty()) return kNone;
  return flat.size() == 1 ? flat[0] : intern_list(Kind::kEither, flat);
}

RegexId RegexPool::both(std::vector<RegexId> parts) {
  std::vector<RegexId> flat;
  for (const RegexId part : parts) {
    if (part == kNone) return kNone;
    if (nodes_[part].kind == Kind::kBoth) {
      const std::vector<RegexId> inner = list_of(part);
      flat.insert(flat.end(), inner.begin(), inner.end());
    } else if (part != kAny) {
      flat.push_back(part);
    }
  }
  std::ranges::sort(flat);
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  if (flat.empty()) return kAny;
  if (flat.size() == 1) return flat[0];
  std::vector<RegexId> rest;
  CharSet set = sets_[0];
  bool has_set = false, all_nullable = true;
  Node counter{Kind::kRepeat, true, true, 3, 0, kInfinite, 0};
  for (const RegexId part : flat) {
    const Node& node = nodes_[part];
    all_nullable &= node.nullable;
    if (node.kind == Kind::kNegated && std::ranges::binary_search(flat, node.a)) return kNone;
    if (node.kind == Kind::kChars) {
      set = set.intersection(sets_[node.a]);
      has_set = true;
    } else if (node.kind == Kind::kRepeat && node.a == 3) {
      counter.b = std::max(counter.b, node.b);
      counter.c = std::min(counter.c, node.c);
    } else {
      rest.push_back(part);
    }
  }
  if (flat[0] == kEmpty) return all_nullable ? kEmpty : kNone;
  if (has_set && set.is_empty()) return kNone;
  if (counter.b > counter.c) return kNone;
  if (has_set) rest.push_back(chars(set));
  const RegexId count = repeat(3, counter.b, counter.c);
  if (count != kAny) rest.push_back(count);
  std::ranges::sort(rest);
  if (rest.empty()) return kAny;
  return rest.size() == 1 ? rest[0] : intern_list(Kind::kBoth, rest);
}

RegexId RegexPool::negated(RegexId a) {
  if (a == kNone) return kAny;
  if (a == kAny) return kNone;
  if (nodes_[a].kind == Kind::kNegated) return nodes_[a].a;
  return intern({Kind::kNegated, !nodes_[a].nullable, false, a, 0, 0, 0});
}

RegexId RegexPool::repeat(RegexId a, uint32_t min, uint32_t max) {
  if (max == 0 || a == kEmpty) return kEmpty;
  if (a == kNone) return min == 0 ? kEmpty : kNone;
  const Node inner = nodes_[a];
  if (inner.nullable) min = 0;
  if (min == 1 && max == 1) return a;
  if (a == kAny) return kAny;
  if (inner.kind == Kind::kRepeat && inner.c == kInfinite && inner.b <= 1)
    return repeat(inner.a, min == 0 ? 0 : inner.b * min, kInfinite);
  return intern({Kind::kRepeat, min == 0 || inner.nullable, inner.simple, a, min, max, 0});
}

// What contains texts of which each is asked for by itself, such as `.*a.*` and `.*b.*`: any text goes on to one of
// them, and to one of an intersection of such languages, too.
bool RegexPool::takes_any_prefix(RegexId id) const {
  const Node& node = nodes_[id];
  const auto takes = [&](RegexId part) { return takes_any_prefix(part); };
  const auto parts = [&] { return std::span(lists_).subspan(node.a, node.b - node.a); };
  switch (node.kind) {
    case Kind::kRepeat: return id == kAny;
    case Kind::kConcat: {
      if (node.a != kAny || !node.simple) return false;  // the simple ones are not empty
      RegexId last = node.b;
      while (nodes_[last].kind == Kind::kConcat) last = nodes_[last].b;
      return last == kAny;
    }
    case Kind::kEither: return std::ranges::any_of(parts(), takes);
    case Kind::kBoth: return std::ranges::all_of(parts(), takes);
    default: return false;
  }
}

RegexPool::Absorbed RegexPool::absorbed(RegexId id) const {
  if (takes_any_prefix(id)) return {CharSet::all(), kInfinite};
  const Node& node = nodes_[id];
  Absorbed most;
  switch (node.kind) {
    case Kind::kRepeat:
      if (nodes_[node.a].kind == Kind::kChars) most = {sets_[nodes_[node.a].a], node.c};
      return most;
    case Kind::kConcat: return nodes_[node.b].simple ? absorbed(node.a) : most;
    case Kind::kEither:
      for (uint32_t i = node.a; i < node.b; ++i) {
        Absorbed part = absorbed(lists_[i]);
        if (part.count > most.count ||
            (part.count == most.count && part.chars.spans().size() > most.chars.spans().size()))
          most = std::move(part);
      }
      return most;
    case Kind::kBoth:
      for (uint32_t i = node.a; i < node.b; ++i) {
        const Absorbed part = absorbed(lists_[i]);
        most.chars = i == node.a ? part.chars : most.chars.intersection(part.chars);
      }
      return {most.chars, num_absorbed(id, most.chars)};
    default: return most;
  }
}

uint32_t RegexPool::num_absorbed(RegexId id, const CharSet& set) const {
  if (takes_any_prefix(id)) return kInfinite;
  const Node& node = nodes_[id];
  uint32_t most = 0;
  switch (node.kind) {
    case Kind::kRepeat: {
      const Node& inner = nodes_[node.a];
      return inner.kind == Kind::kChars && sets_[inner.a].intersection(set) == set ? node.c : 0;
    }
    case Kind::kConcat: return nodes_[node.b].simple ? num_absorbed(node.a, set) : 0;
    case Kind::kEither:
      for (uint32_t i = node.a; i < node.b; ++i) most = std::max(most, num_absorbed(lists_[i], set));
      return most;
    case Kind::kBoth: {  // counters of whole classes: none ends before the least
      most = kInfinite;
      uint32_t least_needed = 0;
      for (uint32_t i = node.a; i < node.b; ++i) {
        const Node& part = nodes_[lists_[i]];
        if (part.kind != Kind::kRepeat) return 0;
        most = std::min(most, num_absorbed(lists_[i], set));
        least_needed = std::max(least_needed, part.b);
      }
      return least_needed <= most ? most : 0;
    }
    default: return 0;
  }
}

bool RegexPool::matches(RegexId id, std::u32string_view text) {
  for (const char32_t c : text) {
    if (id == kNone) return false;
    id = derive(id, c);
  }
  return is_nullable(id);
}

RegexId RegexPool::derive(RegexId id, char32_t code_point) {
  const Node& node = nodes_[id];
  if (node.kind == Kind::kChars) return sets_[node.a].contains(code_point) ? kEmpty : kNone;
  if (id <= kEmpty) return kNone;
  if (id == kAny) return kAny;
  const uint64_t key = uint64_t{id} << 21 | code_point;
  if (const uint32_t known = derivatives_.find(key); known != FlatMap::kAbsent) return known;
  const RegexId result = derive_uncached(id, code_point);
  derivatives_.insert(key, result);
  return result;
}

RegexId RegexPool::derive_uncached(RegexId id, char32_t c) {
  const Node node = nodes_[id];
  ++work_;
  switch (node.kind) {
    case Kind::kNone:
    case Kind::kEmpty: return kNone;
    case Kind::kChars: return sets_[node.a].contains(c) ? kEmpty : kNone;
    case Kind::kConcat: {
      const RegexId first = concat(derive(node.a, c), node.b);
      return nodes_[node.a].nullable ? either(first, derive(node.b, c)) : first;
    }
    case Kind::kEither:
    case Kind::kBoth: {
      std::vector<RegexId> parts = list_of(id);
      for (RegexId& part : parts) {
        part = derive(part, c);
        if (part == kNone && node.kind == Kind::kBoth) return kNone;
      }
      return node.kind == Kind::kEither ? either(std::move(parts)) : both(std::move(parts));
    }
    case Kind::kNegated: return negated(derive(node.a, c));
    case Kind::kRepeat: {
      const RegexId first = derive(node.a, c);
      if (first == kNone) return kNone;
      return concat(first, repeat(node.a, node.b == 0 ? 0 : node.b - 1, node.c == kInfinite ? kInfinite : node.c - 1));
    }
    case Kind::kTexts: return derive_texts(node, c);
    case Kind::kMultiple: return derive_multiple(node, c);
  }
  return kNone;
}

size_t RegexPool::num_bytes() const {
  return nodes_.size() * (sizeof(Node) + 32) + lists_.size() * 4 + derivatives_.num_bytes() + interned_.num_bytes() +
         sets_.size() * 64;
}

}  // namespace deepinfer
