// SPDX-License-Identifier: MIT
// Masks of a machine's states over one vocabulary. A state's mask is the union of its items' masks; an item inside a
// JSON string has a part for tokens that stay inside, which depends on the text that is left alone, and a part for
// tokens with the closing quote. Parts are cached, compressed, least recently used first out. Not thread-safe.
#pragma once

#include <list>
#include <span>
#include <unordered_map>
#include <vector>

#include "grammar/machine.h"
#include "grammar/regex_walk.h"
#include "grammar/token_index.h"
#include "grammar/work_budget.h"

namespace deepinfer {

class MaskMaker {
 public:
  // Machine and index outlive the object.
  MaskMaker(Machine& machine, const TokenIndex& index, size_t cache_bytes_max)
      : machine_(machine), index_(index), cache_bytes_max_(cache_bytes_max), walk_(machine.program().regexes) {}

  // Adds the tokens whose bytes may come next. Control tokens are the owner's. False when the work was cut short: the
  // row holds nothing of use then. Precondition: row.size() = num_words().
  bool add(StateId state, std::span<uint32_t> row, WorkBudget& budget);
  // The same where nothing has to be worked out; false elsewhere.
  bool look_up(StateId state, std::span<uint32_t> row);

  size_t num_masks() const { return masks_.size(); }
  size_t num_bytes() const { return mask_bytes_ + walk_.num_bytes() + other_bytes_; }

 private:
  using Row = std::span<uint32_t>;
  using Tier = TokenIndex::Tier;
  using Key = uint64_t;  // what, tier, part
  struct Mask {
    const std::vector<uint32_t>* base = nullptr;  // of the index: the words hold what comes beside it
    bool is_sparse = false;
    std::vector<uint32_t> words;  // the row, or ids
    std::list<Key>::iterator place;
    size_t num_bytes() const { return words.capacity() * 4 + 112; }
  };
  enum Part : Key { kAll = 0, kInside = 1, kClosing = 2, kUnion = 3, kInsideRest = 4 };
  Key key_of(uint32_t what, const Tier& tier, Part part) const {
    return Key{what} << 4 | (&tier == &index_.tiers()[1] ? 8u : 0u) | part;
  }

  // What a part allows while it is computed; most parts allow few tokens.
  struct Found {
    const std::vector<uint32_t>* base = nullptr;
    std::vector<uint32_t> words;  // a row, where one was made
    std::vector<TokenId> ids;     // besides
    void add(TokenId id) { ids.push_back(id); }
    void clear() {
      base = nullptr;
      words.clear();
      ids.clear();
    }
  };
  void make(StateId state, Row row);
  bool goes_on();  // false: cut short
  bool absorbs_plain(RegexId text, const Tier& tier);
  bool takes_all_plain(const std::vector<Machine::Item>& items, const Tier& tier);
  void add_items(const std::vector<Machine::Item>& items, const Tier& tier, Row row, std::vector<Key>& keys);
  // `inside`: with the part for tokens that stay inside a string.
  void add_item(const Machine::Item& item, const Tier& tier, bool inside, bool has_plain, Row row,
                std::vector<Key>& keys);
  RegexId all_key_texts(const std::vector<Machine::Item>& items, const Tier& tier);
  bool add_cached(Key key, Row row);
  static void unite(Row row, const Mask& mask);
  // Adds what `compute` finds, and keeps it.
  template <typename Compute>
  void add_part(Key key, Row row, std::vector<Key>& keys, Compute&& compute);
  Mask& remember(Key key, Mask mask);

  void compute_all(StateId state, const Tier& tier);
  void compute_inside(RegexId text, const Tier& tier, bool has_plain);
  void add_plain(RegexId text, const Tier& tier);
  void compute_closing(const Machine::StringBody& body, RegexId text, const Tier& tier);
  void find_names(const Machine::StringBody& body, const CharTrie& trie, size_t node, uint32_t begin, uint32_t end,
                  uint32_t depth, std::vector<TokenId>& out) const;
  template <typename OnToken>
  void walk_bytes(const TokenIndex::Trie& trie, StateId state, OnToken&& on_token);
  struct Suffixes {
    std::vector<int32_t> ids;  // of Tier::quoted
    std::vector<bool> allowed;
  };
  const Suffixes& suffixes(StateId after, const Tier& tier);
  Suffixes cut_suffixes_;  // what there is of them when the work was cut short

  Machine& machine_;
  const TokenIndex& index_;
  const size_t cache_bytes_max_;
  RegexWalk walk_;
  std::unordered_map<Key, Mask> masks_;
  std::list<Key> recent_;                                // most recent first
  std::unordered_map<StateId, std::vector<Key>> parts_;  // of states met before; empty masks are left out
  std::unordered_map<Key, Suffixes> suffixes_;
  Found found_;  // scratch
  // Of the call under way.
  uint64_t work_end_ = 0;
  bool is_cut_ = false;
  size_t mask_bytes_ = 0, other_bytes_ = 0;
};

}  // namespace deepinfer
