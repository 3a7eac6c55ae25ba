// SPDX-License-Identifier: MIT
#include "grammar/mask_maker.h"

#include <algorithm>
#include <array>

#include "base/token_masks.h"

namespace deepinfer {
namespace {

constexpr size_t kSparseIdsMax = 1024;
constexpr size_t kItemsMax = 8;         // of a state whose parts are put together anew each time
constexpr size_t kStatesMax = 100'000;  // with their parts listed

void unite_rows(std::span<uint32_t> row, std::span<const uint32_t> other) {
  for (size_t i = 0; i < row.size(); ++i) row[i] |= other[i];
}

}  // namespace

bool MaskMaker::add(StateId state, Row row, WorkBudget& budget) {
  if (look_up(state, row)) return true;
  const uint64_t begin = machine_.work();
  work_end_ = budget.units > UINT64_MAX - begin ? UINT64_MAX : begin + budget.units;
  is_cut_ = false;
  make(state, row);  // what has been added is right
  budget.spend(machine_.work() - begin);
  return !is_cut_;
}

bool MaskMaker::look_up(StateId state, Row row) {
  const auto known = parts_.find(state);
  return known != parts_.end() &&
         std::ranges::all_of(known->second, [&](Key key) { return add_cached(key, row); });  // else pushed out
}

bool MaskMaker::goes_on() {
  if (machine_.work() > work_end_) is_cut_ = true;
  return !is_cut_;
}

void MaskMaker::make(StateId state, Row row) {
  if (parts_.size() > kStatesMax) {
    parts_.clear();
    other_bytes_ = 0;
  }
  std::vector<Key> keys;
  const std::vector<Machine::Item> items = machine_.items(state);
  const bool is_wide = items.size() > kItemsMax;
  for (const Tier& tier : index_.tiers()) {
    if (is_wide) {
      const Key key = key_of(state, tier, kUnion);
      if (!add_cached(key, row)) {
        Mask all;
        all.words.resize(row.size(), 0);
        std::vector<Key> inner;
        add_items(items, tier, all.words, inner);
        if (is_cut_) return;
        unite(row, remember(key, std::move(all)));
      }
      keys.push_back(key);
    } else {
      add_items(items, tier, row, keys);
    }
  }
  if (is_cut_) return;
  std::ranges::sort(keys);
  keys.erase(std::unique(keys.begin(), keys.end()), keys.end());
  other_bytes_ += keys.size() * sizeof(Key) + 64;
  parts_[state] = std::move(keys);
}

// Takes plain characters without end, or as many as a token has.
bool MaskMaker::absorbs_plain(RegexId text, const Tier& tier) {
  return machine_.program().regexes.num_absorbed(text, TokenIndex::plain_chars()) >= tier.plain_masks.size() ||
         walk_.num_safe(text) >= tier.plain_masks.size();
}

// Whether one of several items allows every plain token, as one of an object's classes of keys tends to: then nobody
// has to look which of them the others allow.
bool MaskMaker::takes_all_plain(const std::vector<Machine::Item>& items, const Tier& tier) {
  return items.size() > 1 && std::ranges::any_of(items, [&](const Machine::Item& item) {
           const auto body = machine_.string_body(item);
           return body && machine_.alone(item, tier.token_bytes_max) != Machine::kDead &&
                  absorbs_plain(machine_.program().regexes.saturated(body->text, tier.token_bytes_max), tier);
         });
}

// Of a key that may belong to one of several classes of an object's keys: each class forbids what makes a key one of
// another, so each would be walked far, and all together forbid next to nothing. kNone where there are no such items.
RegexId MaskMaker::all_key_texts(const std::vector<Machine::Item>& items, const Tier& tier) {
  std::vector<RegexId> texts;
  for (const Machine::Item& item : items) {
    const auto body = machine_.string_body(item);
    if (body && body->shape != nullptr && machine_.alone(item, tier.token_bytes_max) != Machine::kDead)
      texts.push_back(machine_.program().regexes.saturated(body->text, tier.token_bytes_max));
  }
  return texts.size() < 2 ? RegexPool::kNone : machine_.program().regexes.either(std::move(texts));
}

void MaskMaker::add_items(const std::vector<Machine::Item>& items, const Tier& tier, Row row, std::vector<Key>& keys) {
  const bool has_plain = takes_all_plain(items, tier);
  const RegexId all = has_plain ? RegexPool::kNone : all_key_texts(items, tier);
  if (all != RegexPool::kNone && goes_on())
    add_part(key_of(all, tier, kInside), row, keys, [&] { compute_inside(all, tier, false); });
  for (const Machine::Item& item : items) {
    const bool is_key = machine_.program().nodes[item.node].kind == GrammarNode::Kind::kObject;
    add_item(item, tier, all == RegexPool::kNone || !is_key, has_plain, row, keys);
  }
}

// `has_plain`: another item allows all plain tokens.
void MaskMaker::add_item(const Machine::Item& item, const Tier& tier, bool inside, bool has_plain, Row row,
                         std::vector<Key>& keys) {
  if (!goes_on()) return;
  const GrammarNode::Kind kind = machine_.program().nodes[item.node].kind;
  if (kind == GrammarNode::Kind::kAccept || kind == GrammarNode::Kind::kTokens) return;
  const uint32_t cap = tier.token_bytes_max;
  const StateId alone = machine_.alone(item, cap);
  if (alone == Machine::kDead) return;
  const auto body = machine_.string_body(item);
  if (!body) return add_part(key_of(alone, tier, kAll), row, keys, [&] { compute_all(alone, tier); });
  const RegexId text = machine_.program().regexes.saturated(body->text, cap);
  if (inside) {
    const bool is_rest = has_plain && !absorbs_plain(text, tier);
    add_part(key_of(text, tier, is_rest ? kInsideRest : kInside), row, keys,
             [&] { compute_inside(text, tier, is_rest); });
  }
  if (body->after == Machine::kDead) return;
  add_part(key_of(alone, tier, kClosing), row, keys, [&] { compute_closing(*body, text, tier); });
}

void MaskMaker::unite(Row row, const Mask& mask) {
  if (mask.base != nullptr) unite_rows(row, *mask.base);
  if (!mask.is_sparse) return unite_rows(row, mask.words);
  for (const uint32_t id : mask.words) allow(row, static_cast<TokenId>(id));
}

bool MaskMaker::add_cached(Key key, Row row) {
  const auto known = masks_.find(key);
  if (known == masks_.end()) return false;
  unite(row, known->second);
  recent_.splice(recent_.begin(), recent_, known->second.place);
  return true;
}

template <typename Compute>
void MaskMaker::add_part(Key key, Row row, std::vector<Key>& keys, Compute&& compute) {
  const auto known = masks_.find(key);
  const Mask* mask = known == masks_.end() ? nullptr : &known->second;
  if (mask == nullptr) {
    found_.clear();
    compute();
    if (is_cut_) return;
    Mask made;
    made.base = found_.base;
    made.is_sparse = found_.words.empty() && found_.ids.size() <= kSparseIdsMax;
    if (made.is_sparse) {
      made.words.assign(found_.ids.begin(), found_.ids.end());
    } else {
      made.words = found_.words;
      made.words.resize(row.size(), 0);
      for (const TokenId id : found_.ids) allow(made.words, id);
    }
    mask = &remember(key, std::move(made));
  } else {
    recent_.splice(recent_.begin(), recent_, mask->place);
  }
  unite(row, *mask);
  if (mask->base != nullptr || !mask->words.empty()) keys.push_back(key);
}

MaskMaker::Mask& MaskMaker::remember(Key key, Mask mask) {
  recent_.push_front(key);
  mask.place = recent_.begin();
  mask_bytes_ += mask.num_bytes();
  Mask& kept = masks_.emplace(key, std::move(mask)).first->second;
  while (mask_bytes_ > cache_bytes_max_ && recent_.size() > 1) {
    const auto oldest = masks_.find(recent_.back());
    mask_bytes_ -= oldest->second.num_bytes();
    masks_.erase(oldest);
    recent_.pop_back();
  }
  return kept;
}

// Visits the trie nodes whose bytes lead to a live state.
template <typename OnToken>
void MaskMaker::walk_bytes(const TokenIndex::Trie& trie, StateId state, OnToken&& on_token) {
  std::array<StateId, 257> states;
  std::array<const std::array<uint64_t, 4>*, 257> live;
  states[0] = state;
  live[0] = &machine_.live_bytes(state);
  for (size_t i = 0; i < trie.size();) {
    const TokenIndex::Node& node = trie[i];
    if (((*live[node.depth])[node.byte >> 6] >> (node.byte & 63) & 1) == 0) {
      i = node.next;
      continue;
    }
    if (!goes_on()) return;
    const StateId next = machine_.step(states[node.depth], node.byte);
    if (next == Machine::kDead) {
      i = node.next;
      continue;
    }
    if (node.token >= 0) on_token(node.token);
    if (node.next > i + 1) {
      states[node.depth + 1u] = next;
      live[node.depth + 1u] = &machine_.live_bytes(next);
    }
    ++i;
  }
}

void MaskMaker::compute_all(StateId state, const Tier& tier) {
  walk_bytes(tier.all, state, [&](TokenId id) { found_.add(id); });
}

// Tokens of the plain trie in its order, as ranges: of those that allow most, what is refused is taken out of all.
void MaskMaker::add_plain(RegexId text, const Tier& tier) {
  const CharTrie& trie = tier.plain;
  const std::span<const CharTrie::End> all = trie.all_ends(0);
  std::vector<std::span<const CharTrie::End>> found;
  size_t num_found = 0;
  const auto add = [&](std::span<const CharTrie::End> ends) {
    if (ends.empty()) return;
    num_found += ends.size();
    if (!found.empty() && found.back().data() + found.back().size() == ends.data())
      found.back() = {found.back().data(), found.back().size() + ends.size()};
    else found.push_back(ends);
  };
  walk_.walk(
      trie, text, [&](size_t node, RegexId) { add(trie.ends(node)); }, [&] { return goes_on(); },
      [&](size_t node) { add(trie.all_ends(node)); });
  if (num_found <= all.size() / 2) {
    for (const auto ends : found)
      for (const CharTrie::End& end : ends) found_.add(end.token);
    return;
  }
  found_.words = tier.plain_masks.back();
  const CharTrie::End* refused = all.data();
  found.push_back(all.last(0));
  for (const auto ends : found) {
    for (; refused != ends.data(); ++refused)
      found_.words[static_cast<size_t>(refused->token) / 32] &= ~(1u << (refused->token % 32));
    refused += ends.size();
  }
}

void MaskMaker::compute_inside(RegexId text, const Tier& tier, bool has_plain) {
  RegexPool& regexes = machine_.program().regexes;
  const auto goes_on = [&] { return this->goes_on(); };
  const auto add = [&](const CharTrie& trie) {
    walk_.walk(
        trie, text,
        [&](size_t node, RegexId left) {
          for (const CharTrie::End& end : trie.ends(node)) {
            // A token whose last character is cut off is allowed when some such character is.
            if (end.rest < 0 || meets(regexes.live_chars(left), index_.tails()[static_cast<size_t>(end.rest)]))
              found_.add(end.token);
          }
        },
        goes_on);
  };
  // What takes plain characters without end, or a count of them and then ends, needs no walk over plain tokens.
  const size_t absorbed =
      absorbs_plain(text, tier) ? tier.plain_masks.size() : regexes.num_absorbed(text, TokenIndex::plain_chars());
  if (absorbed == tier.plain_masks.size() || (absorbed > 0 && regexes.is_repeat(text)))
    found_.base = &tier.plain_masks[absorbed - 1];
  else if (!has_plain) add_plain(text, tier);
  add(tier.rest);
}

const MaskMaker::Suffixes& MaskMaker::suffixes(StateId after, const Tier& tier) {
  const Key key = key_of(after, tier, kAll);
  if (const auto known = suffixes_.find(key); known != suffixes_.end()) return known->second;
  Suffixes found;
  found.allowed.resize(tier.quoted.size());
  walk_bytes(tier.after_quote, after, [&](TokenId suffix) {
    found.ids.push_back(suffix);
    found.allowed[static_cast<size_t>(suffix)] = true;
  });
  if (is_cut_) return cut_suffixes_ = std::move(found);
  other_bytes_ += found.ids.size() * 4 + found.allowed.size() / 8 + 96;
  return suffixes_[key] = std::move(found);
}

void MaskMaker::compute_closing(const Machine::StringBody& body, RegexId text, const Tier& tier) {
  const Suffixes& allowed = suffixes(body.after, tier);
  RegexPool& regexes = machine_.program().regexes;
  const auto add = [&](const CharTrie& trie) {
    walk_.walk(
        trie, text,
        [&](size_t node, RegexId left) {
          if (!regexes.is_nullable(left)) return;
          for (const CharTrie::End& end : trie.ends(node))
            if (end.rest < 0 || allowed.allowed[static_cast<size_t>(end.rest)]) found_.add(end.token);
        },
        [&] { return goes_on(); });
  };
  const bool may_always_close = regexes.is_repeat(text) && regexes.is_nullable(text) &&
                                regexes.num_absorbed(text, TokenIndex::plain_chars()) >= tier.chars_before_quote_max;
  if (may_always_close) {
    for (const TokenId id : tier.quote_ends) found_.add(id);
    for (const int32_t suffix : allowed.ids)
      for (const TokenId id : tier.quoted[static_cast<size_t>(suffix)]) found_.add(id);
    add(tier.closing_rest);
  } else {
    add(tier.closing);
  }
  if (body.shape == nullptr || body.key.begin == body.key.end) return;
  std::vector<TokenId> names;
  find_names(body, tier.closing, 0, body.key.begin, body.key.end, body.key.depth, names);
  std::ranges::sort(names);
  std::erase_if(found_.ids, [&](TokenId id) { return std::ranges::binary_search(names, id); });
}

// Tokens that end a key which is a member's name: it is no other key. Names and the trie's children are sorted alike.
void MaskMaker::find_names(const Machine::StringBody& body, const CharTrie& trie, size_t node, uint32_t begin,
                           uint32_t end, uint32_t depth, std::vector<TokenId>& out) const {
  const std::vector<ObjectShape::Member>& members = body.shape->members;
  if (begin < end && members[begin].name.size() == depth) {
    for (const CharTrie::End& one : trie.ends(node)) out.push_back(one.token);
    ++begin;
  }
  size_t child = node + 1;
  const size_t stop = trie.nodes()[node].next;
  while (begin < end && child < stop) {
    const char32_t c = members[begin].name[depth];
    if (trie.nodes()[child].c < c) {
      child = trie.nodes()[child].next;
      continue;
    }
    uint32_t same = begin;
    while (same < end && members[same].name[depth] == c) ++same;
    if (trie.nodes()[child].c == c) find_names(body, trie, child, begin, same, depth + 1, out);
    begin = same;
  }
}

}  // namespace deepinfer
