// SPDX-License-Identifier: MIT
// Regular languages over code points as interned expressions. An expression's id is its automaton state: derive() gives
// the state after one code point (Brzozowski 1964; intersection and complement come with it). Counters stay counters:
// x{3,100000} is one node, whatever its bounds. Literal sets and multiples of a number are leaves of their own.
// Not thread-safe. Memory is bounded: when the pool has grown past its limit every result is kNone and is_full() is
// true; the owner must then give up with resource_exhausted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "grammar/char_set.h"
#include "grammar/flat_map.h"

namespace deepinfer {

using RegexId = uint32_t;

// A value written as decimal digits is a multiple of `divisor` / 10^`num_decimals`.
struct DecimalDivisor {
  uint64_t divisor = 1;  // below 2^59
  int num_decimals = 0;
  bool has_exponent = false;  // behind one digit that is not 0, and a fraction; else there is none
};

class RegexPool {
 public:
  static constexpr RegexId kNone = 0;   // no text
  static constexpr RegexId kEmpty = 1;  // the empty text
  static constexpr RegexId kAny = 2;    // every text
  static constexpr uint32_t kInfinite = ~uint32_t{0};

  RegexPool();

  RegexId chars(const CharSet& set);
  RegexId text(std::u32string_view text);
  RegexId concat(RegexId a, RegexId b);
  RegexId either(std::vector<RegexId> parts);
  RegexId either(RegexId a, RegexId b) { return either(std::vector<RegexId>{a, b}); }
  RegexId both(std::vector<RegexId> parts);
  RegexId both(RegexId a, RegexId b) { return both(std::vector<RegexId>{a, b}); }
  RegexId negated(RegexId a);
  RegexId repeat(RegexId a, uint32_t min, uint32_t max);  // max = kInfinite: no bound
  // One of the texts. Cheap for 10^5 of them.
  RegexId any_of(std::vector<std::u32string> texts);
  // Digits, then a point and digits, whose value is a multiple; with an exponent, or without. Syntax of the number is
  // not checked beyond that: numbers of the two kinds part early, so that what no exponent can mend ends at once.
  RegexId multiple_of(DecimalDivisor divisor);
  // The boolean expression with `from` replaced by `to`, below a complement by `below_not`, and without multiples that
  // have exponents. `found` tells whether there was anything to replace, or a complement.
  RegexId without_exponents(RegexId id, RegexId from, RegexId to, RegexId below_not, bool& found);

  bool is_nullable(RegexId id) const { return nodes_[id].nullable; }
  bool is_repeat(RegexId id) const { return nodes_[id].kind == Kind::kRepeat; }
  RegexId derive(RegexId id, char32_t code_point);
  // Whether some text is in the language. Beyond a search limit the answer is true.
  bool has_text(RegexId id);
  bool matches(RegexId id, std::u32string_view text);
  // Ends of ranges of code points with one derivative each; the first range begins at 0, the last ends at
  // CharSet::kEnd. Surrogates are a range of their own.
  std::vector<char32_t> class_ends(RegexId id);
  // Code points after which the language is not empty.
  const CharSet& live_chars(RegexId id);
  // Works out ahead what live_chars() says of the nearest derivatives, with about so many units of work().
  void explore(RegexId id, uint64_t work_max);
  // The same expression with every counter above `cap` replaced so that no text of up to `cap` code points can tell.
  RegexId saturated(RegexId id, uint32_t cap);
  // How many characters of `set` in a row are certain to be a prefix of the language: kInfinite, a count, or 0.
  uint32_t num_absorbed(RegexId id, const CharSet& set) const;
  // Characters of which any `count` in a row are certain to be a prefix of the language, as far as is seen at once.
  struct Absorbed {
    CharSet chars;
    uint32_t count = 0;
  };
  Absorbed absorbed(RegexId id) const;
  // Whether every text is certain to be a prefix of the language, as far as is seen at once.
  bool takes_any_prefix(RegexId id) const;
  // Length in code points of the shortest text; bounded search as in has_text, kInfinite when none was found.
  uint32_t shortest(RegexId id);
  // The next code point of a shortest text. Precondition: shortest(id) is finite and not 0.
  char32_t shortest_step(RegexId id);
  // The texts of the language when there are at most `max` of them and none is longer than 64.
  bool enumerate(RegexId id, size_t max, std::vector<std::u32string>& out);

  uint64_t work() const { return work_; }  // units done so far; work_budget.h
  size_t num_nodes() const { return nodes_.size(); }
  size_t num_bytes() const;
  bool is_full() const { return is_full_; }
  // While a grammar is compiled: asked now and then; once it says false the pool counts as full.
  void watch(std::function<bool()> keep_going) { keep_going_ = std::move(keep_going); }
  bool goes_on() {
    if (keep_going_ && !is_full_ && !keep_going_()) is_full_ = is_stopped_ = true;
    return !is_full_;
  }
  bool is_stopped() const { return is_stopped_; }

 private:
  enum class Kind : uint8_t { kNone, kEmpty, kChars, kConcat, kEither, kBoth, kNegated, kRepeat, kTexts, kMultiple };
  struct Node {
    Kind kind;
    bool nullable;
    bool simple;       // no intersection, complement or multiple inside: never empty
    uint32_t a, b, c;  // operands; kEither and kBoth: range [a, b) of lists_; kTexts: table, range of it packed; ...
    uint64_t d;        // kTexts: depth; kMultiple: the rest so far with its place
  };
  struct MultipleState;

  RegexId intern(const Node& node);
  RegexId intern_list(Kind kind, const std::vector<RegexId>& parts);
  RegexId derive_uncached(RegexId id, char32_t code_point);
  RegexId derive_texts(const Node& node, char32_t code_point);
  RegexId derive_multiple(const Node& node, char32_t code_point);
  RegexId texts_node(uint32_t table, uint32_t begin, uint32_t end, uint32_t depth);
  RegexId multiple_node(uint32_t divisor, const MultipleState& state);
  void merge_repeats(std::vector<RegexId>& parts);
  struct Breaks;
  void add_breaks(RegexId id, Breaks& breaks) const;
  std::vector<char32_t> representatives(RegexId id);
  std::vector<RegexId> list_of(RegexId id) const;
  bool has_text_nearby(RegexId id);
  bool search_text(RegexId id);
  uint32_t distance(RegexId id);
  uint32_t longest_way_out(RegexId id);
  bool may_saturate(RegexId id, uint32_t cap);
  size_t hash(const Node& node) const;

  std::vector<Node> nodes_;
  std::vector<RegexId> lists_;
  std::vector<CharSet> sets_;
  std::unordered_map<std::string, uint32_t> set_ids_;
  std::vector<std::vector<std::u32string>> tables_;
  std::vector<DecimalDivisor> divisors_;
  HashIndex interned_;
  FlatCache derivatives_;
  FlatMap has_text_;
  FlatMap distances_;
  std::unordered_map<RegexId, uint32_t> shortest_;
  std::unordered_map<RegexId, std::unique_ptr<CharSet>> live_;
  FlatMap saturated_;
  std::function<bool()> keep_going_;
  uint64_t work_ = 0;
  bool is_full_ = false, is_stopped_ = false;
};

}  // namespace deepinfer
