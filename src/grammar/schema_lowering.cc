// SPDX-License-Identifier: MIT
#include "grammar/schema_lowering.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/utf8.h"

namespace deepinfer {
namespace {

constexpr size_t kNodesMax = 400'000, kKeyClassesMax = 64, kObligationsMax = 4, kUniqueValuesMax = 256;
constexpr size_t kTermsPerLook = 64;         // lowered between two questions whether to go on
constexpr uint64_t kNumberWorkMax = 60'000;  // some milliseconds for all numbers of a schema

std::u32string code_points(std::string_view text) {
  std::u32string out;
  while (!text.empty()) {
    const CodePoint c = decode_utf8(text);
    if (c.num_bytes == 0) break;
    out.push_back(c.value);
    text.remove_prefix(c.num_bytes);
  }
  return out;
}

}  // namespace

NodeId SchemaLowering::node_of(TermId term) {
  const auto [at, is_new] = nodes_.emplace(term, 0);
  if (is_new) {
    at->second = program_.add({GrammarNode::Kind::kChoice, 0, 0, 0});
    open_.push_back(term);
  }
  return at->second;
}

std::string SchemaLowering::path_of(TermId term) {
  const SchemaTerms::Term& t = reader_.terms()[term];
  if (t.kind == SchemaTerms::Kind::kSchema) return reader_.document().path_of(*t.json);
  for (const TermId part : t.parts)
    if (std::string path = path_of(part); path != "#") return path;
  return "#";
}

Status SchemaLowering::refuse(const char* keyword, const char* why) const {
  return unimplemented(fmt::format("{} at {}: {}", keyword, where_, why));
}

Result<NodeId> SchemaLowering::lower(TermId term) {
  const auto first = static_cast<NodeId>(program_.nodes.size());
  const NodeId start = node_of(term);
  TRY(lower_open());
  find_productive(first);
  drop_unproductive(first);
  return start;
}

Status SchemaLowering::lower_open() {
  while (!open_.empty()) {
    const TermId next = open_.back();
    open_.pop_back();
    TRY(lower_one(next));
    if (++num_lowered_ % kTermsPerLook == 0 && !program_.regexes.goes_on())
      return resource_exhausted("schema at #: needs more memory than the limit for a grammar");
    if (program_.nodes.size() > kNodesMax)
      return resource_exhausted("schema at #: the grammar is larger than its limit");
  }
  return {};
}

Result<std::vector<SchemaLowering::SplitValue>> SchemaLowering::lower_split(const std::vector<TermId>& terms) {
  const auto first = static_cast<NodeId>(program_.nodes.size());
  std::vector<SplitValue> values;
  for (const TermId term : terms) {
    where_ = path_of(term);
    ASSIGN_OR_RETURN(const Form* form, reader_.form_of(term));
    const RegexId string = form->string;
    ASSIGN_OR_RETURN(const std::vector<NodeId> ways, other_ways(*form));
    values.push_back({string, program_.add_list(GrammarNode::Kind::kChoice, ways), false});
  }
  TRY(lower_open());
  find_productive(first);
  for (SplitValue& value : values) {
    value.has_others = productive_[value.others];
    if (!program_.regexes.has_text(value.string)) value.string = RegexPool::kNone;
  }
  drop_unproductive(first);
  return values;
}

Status SchemaLowering::lower_one(TermId term) {
  where_ = path_of(term);
  ASSIGN_OR_RETURN(const Form* form, reader_.form_of(term));
  const RegexId string = form->string;
  ASSIGN_OR_RETURN(std::vector<NodeId> ways, other_ways(*form));
  if (string != RegexPool::kNone) ways.push_back(program_.add({GrammarNode::Kind::kString, string}));
  program_.set_list(nodes_[term], GrammarNode::Kind::kChoice, ways);
  return {};
}

Result<std::vector<NodeId>> SchemaLowering::other_ways(const Form& form) {
  RegexPool& pool = program_.regexes;
  std::vector<NodeId> ways;
  std::vector<RegexId> raw;
  if (form.admits_null) raw.push_back(pool.text(U"null"));
  if (form.admits_true) raw.push_back(pool.text(U"true"));
  if (form.admits_false) raw.push_back(pool.text(U"false"));
  raw.push_back(reader_.spelled(form.number, digits_only_));
  // Bounds, multiples and exponents meet in long searches: better made here than in a mask.
  if (const uint64_t begin = pool.work(); number_work_ < kNumberWorkMax) {
    pool.explore(raw.back(), kNumberWorkMax - number_work_);
    number_work_ += pool.work() - begin;
  }
  if (const RegexId all = pool.either(std::move(raw)); all != RegexPool::kNone) ways.push_back(program_.add_raw(all));
  for (const ObjectRule& rule : form.objects) TRY(add_objects(rule, ways));
  for (const ArrayRule& rule : form.arrays) TRY(rule.is_unique ? add_unique_array(rule, ways) : add_array(rule, ways));
  return ways;
}

std::vector<std::string> SchemaLowering::names_of(const ObjectRule& rule) const {
  std::vector<std::string> names = rule.order;
  for (const auto& [name, term] : rule.named)
    if (std::ranges::find(names, name) == names.end()) names.push_back(name);
  std::set<std::string> known(names.begin(), names.end());
  const auto add = [&](const auto& more) {
    for (const std::string& name : more)
      if (known.insert(name).second) names.push_back(name);
  };
  add(rule.required);
  for (const ObjectRule::Keyed& keyed : rule.every) add(keyed.keys.except);
  for (const ObjectRule::Keyed& keyed : rule.some) add(keyed.keys.except);
  return names;
}

Status SchemaLowering::add_objects(const ObjectRule& rule, std::vector<NodeId>& ways) {
  ObjectRule all = rule;
  all.order = names_of(rule);
  return spread_some(std::move(all), 0, {}, ways);
}

// "Some member with such a key" is met by one of the named members, or by another key: one object for each way.
Status SchemaLowering::spread_some(ObjectRule rule, size_t at, std::vector<ObjectRule::Keyed> pending,
                                   std::vector<NodeId>& ways) {
  if (at == rule.some.size()) return add_object(rule, pending, ways);
  if (ways.size() > 512) return refuse("oneOf", "members that some alternatives exclude combine in too many ways");
  const ObjectRule::Keyed some = rule.some[at];
  for (const std::string& name : std::vector<std::string>(rule.order)) {
    if (!reader_.contains(some.keys, name)) continue;
    ObjectRule way = rule;
    const auto [named, is_new] = way.named.emplace(name, some.term);
    if (!is_new) named->second = reader_.terms().both(named->second, some.term);
    way.required.insert(name);
    if (!reader_.is_provably_empty(way, 3)) TRY(spread_some(std::move(way), at + 1, pending, ways));
  }
  pending.push_back(some);
  return spread_some(std::move(rule), at + 1, std::move(pending), ways);
}

Result<std::vector<SchemaLowering::KeyClass>> SchemaLowering::key_classes(const ObjectRule& rule,
                                                                          const std::vector<ObjectRule::Keyed>& some) {
  struct Part {
    RegexId keys;
    std::vector<RegexId> inside;
  };
  RegexPool& pool = program_.regexes;
  std::vector<RegexId> kinds;
  for (const auto* list : {&rule.every, &some})
    for (const ObjectRule::Keyed& keyed : *list)
      if (keyed.keys.keys != RegexPool::kAny && std::ranges::find(kinds, keyed.keys.keys) == kinds.end())
        kinds.push_back(keyed.keys.keys);
  std::vector<Part> parts{{RegexPool::kAny, {RegexPool::kAny}}};
  for (const RegexId kind : kinds) {
    std::vector<Part> next;
    for (const Part& part : parts) {
      Part inside{pool.both(part.keys, kind), part.inside};
      inside.inside.push_back(kind);
      const Part outside{pool.both(part.keys, pool.negated(kind)), part.inside};
      if (pool.has_text(inside.keys)) next.push_back(std::move(inside));
      if (pool.has_text(outside.keys)) next.push_back(outside);
    }
    parts = std::move(next);
    if (parts.size() > kKeyClassesMax) return refuse("patternProperties", "too many patterns overlap");
  }
  std::vector<std::u32string> names;
  for (const std::string& name : rule.order) names.push_back(code_points(name));
  const RegexId named = pool.any_of(std::move(names));
  std::vector<KeyClass> classes;
  for (const Part& part : parts) {
    std::vector<TermId> terms;
    const auto is_inside = [&](RegexId keys) { return std::ranges::find(part.inside, keys) != part.inside.end(); };
    for (const ObjectRule::Keyed& keyed : rule.every)
      if (is_inside(keyed.keys.keys)) terms.push_back(keyed.term);
    const TermId term = reader_.terms().all(terms);
    if (term == kFalseTerm) continue;
    const RegexId keys = part.keys == RegexPool::kAny ? part.keys : pool.both(part.keys, pool.negated(named));
    if (!pool.has_text(keys)) continue;
    uint32_t possible = 0;
    for (size_t i = 0; i < some.size(); ++i) possible |= is_inside(some[i].keys.keys) ? 1u << i : 0;
    for (uint32_t met = 0; met < 1u << some.size(); ++met) {
      if ((met & ~possible) != 0) continue;
      TermId whole = term;
      for (size_t i = 0; i < some.size(); ++i)
        if ((met >> i & 1) != 0) whole = reader_.terms().both(whole, some[i].term);
      if (whole != kFalseTerm) classes.push_back({keys, whole, met});
    }
  }
  return classes;
}

Status SchemaLowering::add_object(const ObjectRule& rule, const std::vector<ObjectRule::Keyed>& some,
                                  std::vector<NodeId>& ways) {
  if (some.size() > kObligationsMax) return refuse("oneOf", "too many alternatives differ by members they exclude");
  ASSIGN_OR_RETURN(const std::vector<KeyClass> classes, key_classes(rule, some));
  ObjectShape shape;
  shape.min = rule.min;
  shape.max = rule.max;
  shape.any_order = order_ == PropertyOrder::kAny;
  shape.obligations = (1u << some.size()) - 1;
  for (size_t i = 0; i < rule.order.size(); ++i) {
    const std::string& name = rule.order[i];
    const auto named = rule.named.find(name);
    TermId term = named == rule.named.end() ? kTrueTerm : named->second;
    for (const ObjectRule::Keyed& keyed : rule.every)
      if (reader_.contains(keyed.keys, name)) term = reader_.terms().both(term, keyed.term);
    ObjectShape::Member member{code_points(name), 0, static_cast<uint32_t>(i), rule.required.contains(name)};
    member.is_possible = term != kFalseTerm;
    if (!member.is_possible && member.is_required) return {};
    if (member.is_possible) member.value = node_of(term);
    shape.members.push_back(std::move(member));
  }
  std::ranges::sort(shape.members, {}, &ObjectShape::Member::name);
  for (const KeyClass& one : classes) shape.others.push_back({one.keys, node_of(one.term), one.obligations});
  program_.objects.push_back(std::move(shape));
  ways.push_back(program_.add({GrammarNode::Kind::kObject, static_cast<uint32_t>(program_.objects.size() - 1)}));
  return {};
}

Status SchemaLowering::add_array(const ArrayRule& rule, std::vector<NodeId>& ways) {
  if (rule.some.size() > kObligationsMax) return refuse("contains", "too many conditions on the items of one array");
  if (rule.prefix.size() > 10'000) return refuse("prefixItems", "more than 10000 items");
  ArrayShape shape;
  shape.min = rule.min;
  shape.max = rule.max;
  size_t num_places = rule.prefix.size() + 1;
  for (const ArrayRule::Counted& some : rule.some) {
    num_places = std::max<size_t>(num_places, some.from + 1);
    shape.counts.push_back({some.min, some.max});
  }
  SchemaTerms& terms = reader_.terms();
  for (size_t i = 0; i < num_places; ++i) {
    const TermId item = i < rule.prefix.size() ? rule.prefix[i] : rule.rest;
    std::vector<ArrayShape::Choice>& choices = shape.places.emplace_back();
    for (uint32_t counted = 0; counted < 1u << rule.some.size(); ++counted) {
      TermId term = item;
      bool applies = true;
      for (size_t k = 0; k < rule.some.size(); ++k) {
        const ArrayRule::Counted& some = rule.some[k];
        const bool is_counted = (counted >> k & 1) != 0;
        if (is_counted && i < some.from) applies = false;
        if (is_counted) term = terms.both(term, some.term);
        else if (some.max != ~0u && i >= some.from) term = terms.both(term, terms.negated(some.term));
      }
      if (applies && term != kFalseTerm) choices.push_back({node_of(term), counted});
    }
  }
  program_.arrays.push_back(std::move(shape));
  ways.push_back(program_.add({GrammarNode::Kind::kArray, static_cast<uint32_t>(program_.arrays.size() - 1)}));
  return {};
}

// Items that must differ: decided when the items come from a small set of scalars, or when there is at most one.
Status SchemaLowering::add_unique_array(const ArrayRule& rule, std::vector<NodeId>& ways) {
  ArrayRule plain = rule;
  plain.is_unique = false;
  if (rule.max <= 1 || (rule.rest == kFalseTerm && rule.prefix.size() <= 1)) return add_array(plain, ways);
  const auto refuse_items = [&] { return refuse("uniqueItems", "the items are not from a small set of scalars"); };
  if (!rule.prefix.empty() || !rule.some.empty()) return refuse_items();
  ASSIGN_OR_RETURN(const Form* form, reader_.form_of(rule.rest));
  const bool has_structure =
      std::ranges::any_of(form->objects, [&](const auto& r) { return !reader_.is_provably_empty(r, 3); }) ||
      std::ranges::any_of(form->arrays, [&](const auto& r) { return !reader_.is_provably_empty(r, 3); });
  RegexPool& pool = program_.regexes;
  if (has_structure || pool.has_text(form->number)) return refuse_items();
  std::vector<std::u32string> texts;
  if (!pool.enumerate(form->string, kUniqueValuesMax, texts)) return refuse_items();
  ArrayShape shape;
  shape.is_unique = true;
  shape.min = rule.min;
  shape.max = rule.max;
  std::vector<ArrayShape::Choice>& choices = shape.places.emplace_back();
  if (form->admits_null) choices.push_back({program_.add_raw(pool.text(U"null"))});
  if (form->admits_true) choices.push_back({program_.add_raw(pool.text(U"true"))});
  if (form->admits_false) choices.push_back({program_.add_raw(pool.text(U"false"))});
  for (const std::u32string& text : texts)
    choices.push_back({program_.add({GrammarNode::Kind::kString, pool.text(text)})});
  shape.max = std::min<uint32_t>(shape.max, static_cast<uint32_t>(choices.size()));
  if (shape.min > shape.max) return {};
  program_.arrays.push_back(std::move(shape));
  ways.push_back(program_.add({GrammarNode::Kind::kArray, static_cast<uint32_t>(program_.arrays.size() - 1)}));
  return {};
}

Result<NodeId> add_json_schema(GrammarProgram& program, const Json& schema, const JsonSchemaOptions& options) {
  if (!schema.is_object() && !schema.is_bool())
    return invalid_argument(
        fmt::format("schema at #: expected an object or a boolean, found {}", to_string(schema.kind())));
  ASSIGN_OR_RETURN(SchemaDocument document, SchemaDocument::open(schema));
  SchemaReader reader(std::move(document), program.regexes, options.lenient);
  SchemaLowering lowering(program, reader, options.order, options.digits_only);
  return lowering.lower(reader.terms().schema(schema));
}

}  // namespace deepinfer
