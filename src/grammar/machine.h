// SPDX-License-Identifier: MIT
// A compiled grammar and its lazily built states. A program is a graph of nodes over lexemes (regular languages read
// raw or through JSON string escapes). A state is an Earley set whose origins are interned by content instead of by
// position: an item's `frame` is the set of items to go on with once its node is complete. Equal futures thus have
// equal ids, so steps and masks are cached by state id, and rollback or fork of a matcher copies ids. Calls of one node
// from one place share a frame, and a call in last position adds none, so right recursion does not grow. Precondition
// of a program: no left recursion (ebnf.h removes it). Not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "grammar/json_shapes.h"
#include "grammar/regex_pool.h"

namespace deepinfer {

using NodeId = uint32_t;
using StateId = uint32_t;

struct GrammarNode {
  enum class Kind : uint8_t { kAccept, kRaw, kString, kSequence, kChoice, kRepeat, kObject, kArray, kTokens };
  Kind kind = Kind::kChoice;
  uint32_t a = 0, b = 0, c = 0;  // kRaw, kString: regex; lists: [a, b) of children; kRepeat: child a, b to c times;
                                 // kObject, kArray: shape a; kTokens: list a
  bool nullable = false;
};

struct GrammarProgram {
  static constexpr NodeId kAccept = 0, kRaw = 1, kString = 2;  // every scanning item names one of these two

  GrammarProgram();
  NodeId add(const GrammarNode& node);
  NodeId add_raw(RegexId regex) { return add({GrammarNode::Kind::kRaw, regex}); }
  NodeId add_list(GrammarNode::Kind kind, const std::vector<NodeId>& parts);
  void set_list(NodeId node, GrammarNode::Kind kind, const std::vector<NodeId>& parts);
  NodeId add_tokens(std::vector<TokenId> ids);
  // False: no text reaches the end, wherever the part without one stands. Front ends have left nothing that cannot
  // come in objects and arrays.
  bool has_text() const;
  void find_nullable();  // once, when complete
  // Nothing is new when a text of `node` is followed by one of `other`: both together are a text of `node`, and `other`
  // may be empty. Both are kChoice.
  void set_absorbed(NodeId node, NodeId other) { absorbed_.emplace_back(node, other); }
  // 0: none is known. Endless repetitions absorb themselves.
  NodeId absorbed(NodeId node) const { return node < absorbs_.size() ? absorbs_[node] : 0; }
  size_t num_bytes() const;

  RegexPool regexes;
  std::vector<GrammarNode> nodes;
  std::vector<NodeId> children;
  std::vector<ObjectShape> objects;
  std::vector<ArrayShape> arrays;
  std::vector<std::vector<TokenId>> token_lists;  // control tokens; text never reaches them
  NodeId start = 0;
  bool flexible_space = false;  // one space after ',' and ':', line breaks with indentation around members

 private:
  void find_absorbed();
  std::vector<std::pair<NodeId, NodeId>> absorbed_;
  std::vector<NodeId> absorbs_;  // by node; of a repetition without end: the one node for "any number" of its child
};

struct MachineLimits {
  size_t items_per_state_max = 5'000;
  size_t bytes_max = size_t{256} << 20;
};

class Machine {
 public:
  static constexpr StateId kDead = 0;

  explicit Machine(std::unique_ptr<GrammarProgram> program, const MachineLimits& limits = {});

  StateId start() const { return start_; }
  StateId step(StateId state, uint8_t byte) {
    const Block* block = states_[state].blocks[byte >> 5].get();
    const int32_t known = block == nullptr ? -1 : (*block)[byte & 31];
    return known >= 0 ? static_cast<StateId>(known) : step_slow(state, byte);
  }
  // The step where it has been made before.
  std::optional<StateId> look_up_step(StateId state, uint8_t byte) const {
    const Block* block = states_[state].blocks[byte >> 5].get();
    if (block == nullptr || (*block)[byte & 31] < 0) return std::nullopt;
    return static_cast<StateId>((*block)[byte & 31]);
  }
  StateId step_token(StateId state, TokenId control);
  bool is_accepting(StateId state) const { return states_[state].is_accepting; }
  // Control tokens that may come next.
  void next_controls(StateId state, std::vector<TokenId>& out) const;
  // A superset of the bytes that lead on, as bits.
  const std::array<uint64_t, 4>& live_bytes(StateId state);

  // About how few bytes lead to an accepting state; bytes_to_end.h.
  uint64_t bytes_to_end(StateId state);

  uint64_t work() const { return work_ + program_->regexes.work(); }  // units done so far; work_budget.h

  // A limit was hit: states that should exist are missing. Empty when all is well.
  const std::string& failure() const { return failure_; }
  const GrammarProgram& program() const { return *program_; }
  GrammarProgram& program() { return *program_; }
  size_t num_states() const { return states_.size(); }
  size_t num_bytes() const;

  struct Item {
    NodeId node;
    uint32_t a, b;
    StateId frame;
    auto operator<=>(const Item&) const = default;
  };
  std::vector<Item> items(StateId state) const;
  size_t num_items(StateId state) const { return states_[state].end - states_[state].begin; }
  // A state goes on as any of its items does, so what may follow it is the union of what may follow each.
  // The state of one item alone whose counters are so small that only texts beyond `chars_max` characters tell.
  StateId alone(Item item, uint32_t chars_max);
  // An item between two characters of a JSON string: the text that is left, the state behind its quote (kDead: none),
  // and for keys outside the named members where among their names the text stands.
  struct StringBody {
    RegexId text;
    StateId after;
    const ObjectShape* shape = nullptr;
    JsonStates::Key key;
  };
  std::optional<StringBody> string_body(const Item& item);

 private:
  friend class Closure;
  friend class BytesToEnd;
  using Block = std::array<int32_t, 32>;  // -1: not known
  struct State {
    uint32_t begin = 0, end = 0;  // of items_
    bool is_accepting = false;
    bool knows_live = false;
    StateId popped = ~0u;  // what follows a frame whose node is complete
    std::array<std::unique_ptr<Block>, 8> blocks;
    std::array<uint64_t, 4> live{};
  };
  // States in blocks that never move: growing costs the same for each, and nothing is copied.
  class StateTable {
   public:
    State& operator[](StateId id) { return blocks_[id >> kBits][id & (kBlock - 1)]; }
    const State& operator[](StateId id) const { return blocks_[id >> kBits][id & (kBlock - 1)]; }
    size_t size() const { return size_; }
    void push_back(State state) {
      if (size_ == blocks_.size() * kBlock) blocks_.push_back(std::make_unique<State[]>(kBlock));
      blocks_[size_ >> kBits][size_ & (kBlock - 1)] = std::move(state);
      ++size_;
    }

   private:
    static constexpr size_t kBits = 8, kBlock = size_t{1} << kBits;
    std::vector<std::unique_ptr<State[]>> blocks_;
    size_t size_ = 0;
  };
  StateId step_slow(StateId state, uint8_t byte);
  StateId intern(std::vector<Item>& items);
  void step_item(const Item& item, uint8_t byte, class Closure& closure);
  void step_raw(const Item& item, uint8_t byte, class Closure& closure);
  void step_string(const Item& item, uint8_t byte, class Closure& closure);
  StateId popped(StateId frame);
  void add_live(const Item& item, std::array<uint64_t, 4>& live);
  void fail(std::string reason);

  std::unique_ptr<GrammarProgram> program_;
  MachineLimits limits_;
  size_t program_bytes_;
  std::vector<Item> items_;
  StateTable states_;
  StateId end_ = kDead;  // accepts and has no more
  HashIndex interned_;
  JsonStates json_states_;
  std::shared_ptr<class BytesToEnd> bytes_to_end_;
  StateId start_ = kDead;
  size_t num_blocks_ = 0;
  uint64_t work_ = 0;
  std::string failure_;
};

}  // namespace deepinfer
