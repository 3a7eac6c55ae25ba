// SPDX-License-Identifier: MIT
#include "grammar/regex_tree.h"

#include <fmt/format.h>

#include <algorithm>

namespace deepinfer {
namespace {

class Lowering {
 public:
  Lowering(RegexPool& pool, const RegexLimits& limits) : pool_(pool), limits_(limits) {}

  Result<RegexId> lower(std::vector<RegexTree> items, bool open_start, bool open_end) {
    if (++num_alternatives_ > limits_.alternatives_max)
      return unimplemented("pattern: anchors inside too many alternatives");
    for (size_t i = 0; i < items.size(); ++i) {
      if (!items[i].has_assertion || is_assertion(items[i])) continue;
      return spread(items, i, open_start, open_end);
    }
    return join(items, open_start, open_end);
  }

 private:
  static bool is_assertion(const RegexTree& tree) { return tree.kind >= RegexTree::Kind::kBegin; }

  // One lowering for each alternative of item `at`, which holds an assertion.
  Result<RegexId> spread(const std::vector<RegexTree>& items, size_t at, bool open_start, bool open_end) {
    const RegexTree& item = items[at];
    std::vector<std::vector<RegexTree>> ways;
    if (item.kind == RegexTree::Kind::kSequence) ways.push_back(item.parts);
    if (item.kind == RegexTree::Kind::kEither)
      for (const RegexTree& part : item.parts) ways.push_back({part});
    if (item.kind == RegexTree::Kind::kRepeat) {
      if (item.max != 1)
        return unimplemented(fmt::format("pattern at {}: an anchor or look-ahead inside a repeat", item.offset));
      ways.push_back(item.parts);
      if (item.min == 0) ways.emplace_back();
    }
    std::vector<RegexId> results;
    for (const std::vector<RegexTree>& way : ways) {
      std::vector<RegexTree> all(items.begin(), items.begin() + static_cast<ptrdiff_t>(at));
      all.insert(all.end(), way.begin(), way.end());
      all.insert(all.end(), items.begin() + static_cast<ptrdiff_t>(at) + 1, items.end());
      ASSIGN_OR_RETURN(const RegexId result, lower(std::move(all), open_start, open_end));
      results.push_back(result);
    }
    return pool_.either(std::move(results));
  }

  // A sequence whose assertions stand at top level: what is before the last ^ and behind the first $ must be empty.
  Result<RegexId> join(const std::vector<RegexTree>& items, bool open_start, bool open_end) {
    size_t begin = 0, end = items.size();
    for (size_t i = 0; i < items.size(); ++i)
      if (items[i].kind == RegexTree::Kind::kBegin) begin = i + 1;
    for (size_t i = items.size(); i-- > 0;)
      if (items[i].kind == RegexTree::Kind::kEnd) end = i;
    RegexId suffix = end < items.size() || !open_end ? RegexPool::kEmpty : RegexPool::kAny;
    for (size_t i = items.size(); i-- > 0;) {
      const RegexTree& item = items[i];
      if (item.kind == RegexTree::Kind::kBegin || item.kind == RegexTree::Kind::kEnd) continue;
      if (is_assertion(item)) {
        ASSIGN_OR_RETURN(const RegexId ahead, lower(item.parts, false, true));
        suffix = pool_.both(suffix, item.kind == RegexTree::Kind::kAhead ? ahead : pool_.negated(ahead));
        continue;
      }
      const RegexId language = plain(item);
      if (i < begin || i >= end) {
        if (!pool_.is_nullable(language)) return RegexId{RegexPool::kNone};
        continue;
      }
      suffix = pool_.concat(language, suffix);
    }
    return begin > 0 || !open_start ? suffix : pool_.concat(RegexPool::kAny, suffix);
  }

  RegexId plain(const RegexTree& tree) {
    switch (tree.kind) {
      case RegexTree::Kind::kChars: return pool_.chars(tree.chars);
      case RegexTree::Kind::kSequence: {
        RegexId result = RegexPool::kEmpty;
        for (size_t i = tree.parts.size(); i-- > 0;) result = pool_.concat(plain(tree.parts[i]), result);
        return result;
      }
      case RegexTree::Kind::kEither: {
        std::vector<RegexId> parts;
        for (const RegexTree& part : tree.parts) parts.push_back(plain(part));
        return pool_.either(std::move(parts));
      }
      case RegexTree::Kind::kRepeat: return pool_.repeat(plain(tree.parts[0]), tree.min, tree.max);
      default: return RegexPool::kEmpty;
    }
  }

  RegexPool& pool_;
  const RegexLimits& limits_;
  size_t num_alternatives_ = 0;
};

}  // namespace

Result<RegexId> language_of(RegexPool& pool, const RegexTree& tree, bool is_whole, const RegexLimits& limits) {
  Lowering lowering(pool, limits);
  ASSIGN_OR_RETURN(const RegexId id, lowering.lower({tree}, !is_whole, !is_whole));
  if (pool.is_full()) return resource_exhausted("pattern: needs more memory than the limit for a grammar");
  return id;
}

}  // namespace deepinfer
