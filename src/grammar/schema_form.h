// SPDX-License-Identifier: MIT
// The set of values a schema admits, by type: numbers and strings as languages, objects and arrays as unions of
// conjunctive rules. The rules' inner schemas stay terms (boolean expressions over schemas), read when needed, so
// recursive schemas are fine. Forms are closed under and, or, not.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "grammar/regex_pool.h"

namespace deepinfer {

using TermId = uint32_t;
constexpr TermId kTrueTerm = 0, kFalseTerm = 1;

// Keys in the language `keys` that are not in `except`.
struct KeySet {
  RegexId keys = RegexPool::kAny;
  std::set<std::string> except;
  bool operator==(const KeySet&) const = default;
};

struct ObjectRule {
  struct Keyed {
    KeySet keys;
    TermId term = kTrueTerm;
    bool operator==(const Keyed&) const = default;
  };
  struct Evaluated {  // for unevaluatedProperties
    std::set<std::string> names;
    std::vector<RegexId> patterns;
    bool all = false;
    bool operator==(const Evaluated&) const = default;
  };
  std::map<std::string, TermId> named;  // value of this member, when present
  std::vector<std::string> order;       // of `named`, as the schema writes them
  std::set<std::string> required;
  std::vector<Keyed> every;  // all members with such a key
  std::vector<Keyed> some;   // at least one member with such a key
  uint32_t min = 0, max = ~0u;
  Evaluated evaluated;
  bool operator==(const ObjectRule&) const = default;
};

struct ArrayRule {
  struct Counted {
    TermId term = kTrueTerm;
    uint32_t from = 0;  // first index that counts
    uint32_t min = 1, max = ~0u;
    bool operator==(const Counted&) const = default;
  };
  std::vector<TermId> prefix;
  TermId rest = kTrueTerm;
  uint32_t min = 0, max = ~0u;
  std::vector<Counted> some;
  bool is_unique = false;
  uint32_t num_evaluated = 0;  // for unevaluatedItems
  bool all_evaluated = false, evaluates_contained = false;
  bool operator==(const ArrayRule&) const = default;
};

struct Form {
  bool admits_null = false, admits_true = false, admits_false = false;
  RegexId number = RegexPool::kNone, string = RegexPool::kNone;
  std::vector<ObjectRule> objects;
  std::vector<ArrayRule> arrays;
};

}  // namespace deepinfer
