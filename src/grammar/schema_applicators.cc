// SPDX-License-Identifier: MIT
// Keywords that combine schemas, and unevaluated*, which looks at what they matched.
#include <fmt/format.h>

#include <algorithm>

#include "grammar/schema_reader.h"

namespace deepinfer {
namespace {

constexpr size_t kAnnotatedBranchesMax = 5;

}  // namespace

Status SchemaReader::apply_applicators(const Json& schema, Form& form) {
  TRY(apply_enumeration(schema, form));
  for (const char* name : {"$ref", "$dynamicRef", "$recursiveRef"})
    if (keyword(schema, name) != nullptr) TRY(apply_reference(schema, name, form));
  for (const char* name : {"allOf", "anyOf", "oneOf"}) {
    const Json* list = schema.find(name);
    if (list == nullptr) continue;
    if (!list->is_array() || list->as_array().empty())
      return malformed(schema, name, "expected a non-empty array of schemas");
    if (name[0] == 'o') TRY(apply_one_of(schema, *list, form));
    else if (name[1] == 'l') TRY(apply_all_of(schema, *list, form));
    else TRY(apply_any_of(schema, *list, form));
  }
  if (const Json* opposite = schema.find("not")) {
    ASSIGN_OR_RETURN(const Form* inner, form_of(terms_.schema(*opposite)));
    ASSIGN_OR_RETURN(form, without(form, *inner, schema, "not"));
  }
  if (const Json* condition = keyword(schema, "if")) TRY(apply_condition(schema, *condition, form));
  if (const Json* all = schema.find("dependencies")) TRY(apply_dependencies(schema, *all, true, true, form));
  if (const Json* all = keyword(schema, "dependentRequired")) TRY(apply_dependencies(schema, *all, true, false, form));
  if (const Json* all = keyword(schema, "dependentSchemas")) TRY(apply_dependencies(schema, *all, false, true, form));
  return apply_unevaluated(schema, form);
}

Status SchemaReader::apply_reference(const Json& schema, const char* name, Form& form) {
  const Json* ref = schema.find(name);
  if (!ref->is_string()) return malformed(schema, name, "expected a string");
  ASSIGN_OR_RETURN(const Json* target, document_.resolve(schema, name, ref->as_string()));
  ASSIGN_OR_RETURN(const Form* inner, form_of(terms_.schema(*target)));
  ASSIGN_OR_RETURN(form, both(form, *inner, schema, name));
  return {};
}

Status SchemaReader::apply_enumeration(const Json& schema, Form& form) {
  if (const Json* value = keyword(schema, "const")) {
    ASSIGN_OR_RETURN(const Form* constant, form_of(terms_.constant(*value)));
    ASSIGN_OR_RETURN(form, both(form, *constant, schema, "const"));
  }
  const Json* values = schema.find("enum");
  if (values == nullptr) return {};
  if (!values->is_array()) return malformed(schema, "enum", "expected an array");
  Form choices;
  std::vector<RegexId> numbers, strings;
  std::vector<const Json*> scalars;
  for (const Json& value : values->as_array()) {
    ASSIGN_OR_RETURN(const Form one, read_constant(value));
    numbers.push_back(one.number);
    strings.push_back(one.string);
    Form rest = one;
    rest.number = rest.string = RegexPool::kNone;
    TRY(unite(choices, rest, schema, "enum"));
  }
  choices.number = pool_.either(std::move(numbers));
  choices.string = pool_.either(std::move(strings));
  ASSIGN_OR_RETURN(form, both(form, choices, schema, "enum"));
  return {};
}

Status SchemaReader::apply_all_of(const Json& schema, const Json& list, Form& form) {
  for (const Json& part : list.as_array()) {
    ASSIGN_OR_RETURN(const Form* inner, form_of(terms_.schema(part)));
    ASSIGN_OR_RETURN(form, both(form, *inner, schema, "allOf"));
  }
  return {};
}

Status SchemaReader::apply_any_of(const Json& schema, const Json& list, Form& form) {
  const size_t n = list.as_array().size();
  std::vector<const Form*> parts;
  for (const Json& part : list.as_array()) {
    ASSIGN_OR_RETURN(const Form* inner, form_of(terms_.schema(part)));
    parts.push_back(inner);
  }
  Form any;
  if (!keeps_annotations_) {
    for (const Form* part : parts) TRY(unite(any, *part, schema, "anyOf"));
  } else {
    // What a branch evaluates counts whenever it matches, so every combination of matching branches is kept apart.
    if (n > kAnnotatedBranchesMax) return refuse(schema, "anyOf", "too many branches beside unevaluated*");
    for (size_t chosen = 1; chosen < size_t{1} << n; ++chosen) {
      Form one = everything();
      for (size_t i = 0; i < n; ++i) {
        if ((chosen >> i & 1) != 0) {
          ASSIGN_OR_RETURN(one, both(one, *parts[i], schema, "anyOf"));
        } else {
          ASSIGN_OR_RETURN(one, without(one, *parts[i], schema, "anyOf"));
        }
      }
      TRY(unite(any, one, schema, "anyOf"));
    }
  }
  ASSIGN_OR_RETURN(form, both(form, any, schema, "anyOf"));
  return {};
}

Status SchemaReader::apply_one_of(const Json& schema, const Json& list, Form& form) {
  std::vector<Form> parts;
  for (const Json& part : list.as_array()) {
    ASSIGN_OR_RETURN(const Form* inner, form_of(terms_.schema(part)));
    ASSIGN_OR_RETURN(Form own, both(form, *inner, schema, "oneOf"));
    parts.push_back(std::move(own));
  }
  Form one;
  for (size_t i = 0; i < parts.size(); ++i) {
    Form only = parts[i];
    for (size_t j = 0; j < parts.size() && !lenient_; ++j) {
      if (j == i) continue;
      ASSIGN_OR_RETURN(const Form* other, form_of(terms_.schema(list.as_array()[j])));
      ASSIGN_OR_RETURN(only, without(only, *other, schema, "oneOf"));
    }
    TRY(unite(one, only, schema, "oneOf"));
  }
  form = std::move(one);
  return {};
}

Status SchemaReader::apply_condition(const Json& schema, const Json& condition, Form& form) {
  const Json* then_schema = schema.find("then");
  const Json* else_schema = schema.find("else");
  if (then_schema == nullptr && else_schema == nullptr && !keeps_annotations_) return {};
  ASSIGN_OR_RETURN(const Form* test, form_of(terms_.schema(condition)));
  ASSIGN_OR_RETURN(Form met, both(form, *test, schema, "if"));
  if (then_schema != nullptr) {
    ASSIGN_OR_RETURN(const Form* inner, form_of(terms_.schema(*then_schema)));
    ASSIGN_OR_RETURN(met, both(met, *inner, schema, "then"));
  }
  ASSIGN_OR_RETURN(Form unmet, without(form, *test, schema, "if"));
  if (else_schema != nullptr) {
    ASSIGN_OR_RETURN(const Form* inner, form_of(terms_.schema(*else_schema)));
    ASSIGN_OR_RETURN(unmet, both(unmet, *inner, schema, "else"));
  }
  TRY(unite(met, unmet, schema, "if"));
  form = std::move(met);
  return {};
}

Status SchemaReader::apply_dependencies(const Json& schema, const Json& dependencies, bool lists, bool schemas,
                                        Form& form) {
  if (!dependencies.is_object()) return malformed(schema, "dependencies", "expected an object");
  for (const auto& [name, needed] : dependencies.as_object()) {
    ObjectRule absent, present;
    absent.named[name] = kFalseTerm;
    present.required.insert(name);
    Form way = everything();
    way.objects = {absent};
    if (needed.is_array() || needed.is_string()) {
      if (!lists) return malformed(schema, "dependentSchemas", "expected schemas");
      for (const Json& other : needed.is_array() ? needed.as_array() : Json::Array{needed}) {
        if (!other.is_string()) return malformed(schema, "dependencies", "expected names");
        present.required.insert(other.as_string());
      }
      way.objects.push_back(present);
    } else if (schemas && (needed.is_object() || needed.is_bool())) {
      ASSIGN_OR_RETURN(const Form* inner, form_of(terms_.schema(needed)));
      for (const ObjectRule& rule : inner->objects) way.objects.push_back(both(rule, present));
    } else {
      return malformed(schema, "dependencies", "expected names or a schema");
    }
    ASSIGN_OR_RETURN(form, both(form, way, schema, "dependencies"));
  }
  return {};
}

Status SchemaReader::apply_unevaluated(const Json& schema, Form& form) {
  if (const Json* rest = keyword(schema, "unevaluatedProperties")) {
    const TermId term = terms_.schema(*rest);
    for (ObjectRule& rule : form.objects) {
      if (rule.evaluated.all) continue;
      KeySet others;
      others.except = rule.evaluated.names;
      for (const RegexId keys : rule.evaluated.patterns) others.keys = pool_.both(others.keys, pool_.negated(keys));
      if (term != kTrueTerm) rule.every.push_back({others, term});
      rule.evaluated.all = true;
    }
  }
  if (const Json* rest = keyword(schema, "unevaluatedItems")) {
    const TermId term = terms_.schema(*rest);
    for (ArrayRule& rule : form.arrays) {
      if (rule.all_evaluated) continue;
      if (rule.evaluates_contained) return refuse(schema, "unevaluatedItems", "beside contains");
      rule.prefix.resize(std::max<size_t>(rule.prefix.size(), rule.num_evaluated), rule.rest);
      for (size_t i = rule.num_evaluated; i < rule.prefix.size(); ++i)
        rule.prefix[i] = terms_.both(rule.prefix[i], term);
      rule.rest = terms_.both(rule.rest, term);
      rule.all_evaluated = true;
    }
  }
  return {};
}

}  // namespace deepinfer
