// SPDX-License-Identifier: MIT
// The algebra of forms: and, or, not, without; and which forms are empty for certain.
#include <algorithm>

#include "grammar/schema_reader.h"

namespace deepinfer {
namespace {

constexpr int kEmptyDepth = 3;

template <typename T>
void append_new(std::vector<T>& into, const std::vector<T>& more) {
  for (const T& value : more)
    if (std::ranges::find(into, value) == into.end()) into.push_back(value);
}

}  // namespace

ObjectRule SchemaReader::both(const ObjectRule& a, const ObjectRule& b) {
  ++work_;
  ObjectRule rule = a;
  for (const std::string& name : b.order)
    if (!rule.named.contains(name)) rule.order.push_back(name);
  for (const auto& [name, term] : b.named) {
    const auto [at, is_new] = rule.named.emplace(name, term);
    if (!is_new) at->second = terms_.both(at->second, term);
  }
  rule.required.insert(b.required.begin(), b.required.end());
  append_new(rule.every, b.every);
  append_new(rule.some, b.some);
  rule.min = std::max(a.min, b.min);
  rule.max = std::min(a.max, b.max);
  rule.evaluated.names.insert(b.evaluated.names.begin(), b.evaluated.names.end());
  append_new(rule.evaluated.patterns, b.evaluated.patterns);
  rule.evaluated.all |= b.evaluated.all;
  return rule;
}

ArrayRule SchemaReader::both(const ArrayRule& a, const ArrayRule& b) {
  ++work_;
  ArrayRule rule = a;
  const auto item = [](const ArrayRule& r, size_t i) { return i < r.prefix.size() ? r.prefix[i] : r.rest; };
  rule.prefix.resize(std::max(a.prefix.size(), b.prefix.size()));
  for (size_t i = 0; i < rule.prefix.size(); ++i) rule.prefix[i] = terms_.both(item(a, i), item(b, i));
  rule.rest = terms_.both(a.rest, b.rest);
  rule.min = std::max(a.min, b.min);
  rule.max = std::min(a.max, b.max);
  append_new(rule.some, b.some);
  rule.is_unique |= b.is_unique;
  rule.num_evaluated = std::max(a.num_evaluated, b.num_evaluated);
  rule.all_evaluated |= b.all_evaluated;
  rule.evaluates_contained |= b.evaluates_contained;
  return rule;
}

bool SchemaReader::is_provably_empty(TermId term, int depth) {
  if (term == kFalseTerm) return true;
  if (term == kTrueTerm || depth <= 0 || open_.contains(term)) return false;
  const uint64_t key = uint64_t{term} << 8 | static_cast<unsigned>(depth);
  if (const auto known = empty_.find(key); known != empty_.end()) return known->second;
  auto form = form_of(term);
  if (!form.ok()) return false;
  const Form& f = **form;
  bool result =
      !f.admits_null && !f.admits_true && !f.admits_false && !pool_.has_text(f.number) && !pool_.has_text(f.string);
  for (size_t i = 0; result && i < f.objects.size(); ++i)
    result = is_provably_empty(ObjectRule(f.objects[i]), depth - 1);
  for (size_t i = 0; result && i < f.arrays.size(); ++i) result = is_provably_empty(ArrayRule(f.arrays[i]), depth - 1);
  if (open_.empty() || result) empty_[key] = result;
  return result;
}

bool SchemaReader::is_provably_empty(const ObjectRule& rule, int depth) {
  if (rule.min > rule.max || rule.required.size() > rule.max) return true;
  for (const std::string& name : rule.required) {
    const auto named = rule.named.find(name);
    TermId term = named == rule.named.end() ? kTrueTerm : named->second;
    for (const ObjectRule::Keyed& keyed : rule.every)
      if (keyed.term != kTrueTerm && contains(keyed.keys, name)) term = terms_.both(term, keyed.term);
    if (is_provably_empty(term, depth)) return true;
  }
  return false;
}

bool SchemaReader::is_provably_empty(const ArrayRule& rule, int depth) {
  if (rule.min > rule.max) return true;
  for (size_t i = 0; i < rule.min && i <= rule.prefix.size(); ++i)
    if (is_provably_empty(i < rule.prefix.size() ? rule.prefix[i] : rule.rest, depth)) return true;
  return std::ranges::any_of(
      rule.some, [&](const ArrayRule::Counted& some) { return some.min > 0 && is_provably_empty(some.term, depth); });
}

template <typename Rule>
Status SchemaReader::check_rules(const std::vector<Rule>& rules, const Json& at, const char* keyword) {
  if (!pool_.goes_on()) return resource_exhausted("schema at #: compiling was given up");
  if (rules.size() > limits_.rules_max || work_ > limits_.work_max)
    return refuse(at, keyword, "its combinations with the other keywords are too many");
  return {};
}

template <typename Rule>
Status SchemaReader::product(std::vector<Rule>& into, const std::vector<Rule>& other, const Json& at,
                             const char* keyword) {
  std::vector<Rule> result;
  for (const Rule& a : into) {
    for (const Rule& b : other) {
      Rule rule = both(a, b);
      const bool is_trivial = into.size() == 1 && other.size() == 1;
      if (is_trivial || (!is_provably_empty(rule, kEmptyDepth) && std::ranges::find(result, rule) == result.end()))
        result.push_back(std::move(rule));
      TRY(check_rules(result, at, keyword));
    }
  }
  into = std::move(result);
  return {};
}

Result<Form> SchemaReader::both(const Form& a, const Form& b, const Json& at, const char* keyword) {
  Form form;
  form.admits_null = a.admits_null && b.admits_null;
  form.admits_true = a.admits_true && b.admits_true;
  form.admits_false = a.admits_false && b.admits_false;
  form.number = both_numbers(a.number, b.number);
  form.string = pool_.both(a.string, b.string);
  form.objects = a.objects;
  form.arrays = a.arrays;
  TRY(product(form.objects, b.objects, at, keyword));
  TRY(product(form.arrays, b.arrays, at, keyword));
  return form;
}

Status SchemaReader::unite(Form& into, const Form& other, const Json& at, const char* keyword) {
  into.admits_null |= other.admits_null;
  into.admits_true |= other.admits_true;
  into.admits_false |= other.admits_false;
  into.number = pool_.either(into.number, other.number);
  into.string = pool_.either(into.string, other.string);
  append_new(into.objects, other.objects);
  append_new(into.arrays, other.arrays);
  TRY(check_rules(into.objects, at, keyword));
  return check_rules(into.arrays, at, keyword);
}

std::vector<ObjectRule> SchemaReader::negated(const ObjectRule& rule) {
  std::vector<ObjectRule> ways;
  for (const std::string& name : rule.required) ways.emplace_back().named[name] = kFalseTerm;
  for (const auto& [name, term] : rule.named) {
    if (term == kTrueTerm) continue;
    ObjectRule& way = ways.emplace_back();
    way.named[name] = terms_.negated(term);
    way.required.insert(name);
  }
  for (const ObjectRule::Keyed& keyed : rule.every)
    if (keyed.term != kTrueTerm) ways.emplace_back().some.push_back({keyed.keys, terms_.negated(keyed.term)});
  for (const ObjectRule::Keyed& keyed : rule.some)
    ways.emplace_back().every.push_back({keyed.keys, terms_.negated(keyed.term)});
  if (rule.min > 0) ways.emplace_back().max = rule.min - 1;
  if (rule.max != ~0u) ways.emplace_back().min = rule.max + 1;
  return ways;
}

Result<std::vector<ArrayRule>> SchemaReader::negated(const ArrayRule& rule, const Json& at, const char* keyword) {
  std::vector<ArrayRule> ways;
  if (rule.is_unique) return refuse(at, keyword, "the opposite of uniqueItems");
  for (size_t i = 0; i < rule.prefix.size(); ++i) {
    if (rule.prefix[i] == kTrueTerm) continue;
    ArrayRule& way = ways.emplace_back();
    way.min = static_cast<uint32_t>(i + 1);
    way.prefix.assign(i, kTrueTerm);
    way.prefix.push_back(terms_.negated(rule.prefix[i]));
  }
  if (rule.rest != kTrueTerm)
    ways.emplace_back().some.push_back({terms_.negated(rule.rest), static_cast<uint32_t>(rule.prefix.size())});
  for (const ArrayRule::Counted& some : rule.some) {
    if (some.from > 0 && some.max != ~0u) return refuse(at, keyword, "the opposite of a bounded count");
    if (some.min == 1) {
      ArrayRule& way = ways.emplace_back();
      way.prefix.assign(some.from, kTrueTerm);
      way.rest = terms_.negated(some.term);
    } else if (some.min > 1) {
      ways.emplace_back().some.push_back({some.term, some.from, 0, some.min - 1});
    }
    if (some.max != ~0u) ways.emplace_back().some.push_back({some.term, some.from, some.max + 1});
  }
  if (rule.min > 0) ways.emplace_back().max = rule.min - 1;
  if (rule.max != ~0u) ways.emplace_back().min = rule.max + 1;
  return ways;
}

Result<Form> SchemaReader::negated(const Form& form, const Json& at, const char* keyword) {
  return without(everything(), form, at, keyword);
}

// form and not other.
Result<Form> SchemaReader::without(const Form& form, const Form& other, const Json& at, const char* keyword) {
  Form result = form;
  result.admits_null &= !other.admits_null;
  result.admits_true &= !other.admits_true;
  result.admits_false &= !other.admits_false;
  const auto difference = [&](RegexId a, RegexId b) {
    if (a == RegexPool::kNone || !pool_.has_text(pool_.both(a, b))) return a;
    return pool_.both(a, pool_.negated(b));
  };
  result.number = other.number == any_number_ ? RegexPool::kNone : difference(form.number, other.number);
  result.string = difference(form.string, other.string);
  std::vector<ObjectRule> objects;
  for (const ObjectRule& rule : form.objects) {
    std::vector<ObjectRule> left{rule};
    for (const ObjectRule& taken : other.objects) {
      if (is_provably_empty(both(rule, taken), kEmptyDepth)) continue;
      TRY(product(left, negated(taken), at, keyword));
    }
    append_new(objects, left);
    TRY(check_rules(objects, at, keyword));
  }
  result.objects = std::move(objects);
  std::vector<ArrayRule> arrays;
  for (const ArrayRule& rule : form.arrays) {
    std::vector<ArrayRule> left{rule};
    for (const ArrayRule& taken : other.arrays) {
      if (is_provably_empty(both(rule, taken), kEmptyDepth)) continue;
      ASSIGN_OR_RETURN(const std::vector<ArrayRule> ways, negated(taken, at, keyword));
      TRY(product(left, ways, at, keyword));
    }
    append_new(arrays, left);
    TRY(check_rules(arrays, at, keyword));
  }
  result.arrays = std::move(arrays);
  return result;
}

}  // namespace deepinfer
