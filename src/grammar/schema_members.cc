// SPDX-License-Identifier: MIT
// Keywords of objects and arrays.
#include <fmt/format.h>

#include <algorithm>

#include "grammar/regex_syntax.h"
#include "grammar/schema_reader.h"

namespace deepinfer {

Result<ObjectRule> SchemaReader::read_object(const Json& schema) {
  ObjectRule rule;
  ASSIGN_OR_RETURN(rule.min, count(schema, "minProperties", 0));
  ASSIGN_OR_RETURN(rule.max, count(schema, "maxProperties", ~0u));
  if (const Json* properties = schema.find("properties")) {
    if (!properties->is_object()) return malformed(schema, "properties", "expected an object");
    for (const auto& [name, member] : properties->as_object()) {
      rule.named[name] = terms_.schema(member);
      rule.order.push_back(name);
      rule.evaluated.names.insert(name);
    }
  }
  const Json* required = schema.find("required");
  if (required != nullptr && required->is_array()) {
    for (const Json& name : required->as_array()) {
      if (!name.is_string()) return malformed(schema, "required", "expected an array of strings");
      rule.required.insert(name.as_string());
    }
  } else if (required != nullptr && !required->is_bool()) {  // draft 3 wrote a boolean, which later drafts ignore
    return malformed(schema, "required", "expected an array of strings");
  }
  const Json* patterns = schema.find("patternProperties");
  if (patterns != nullptr) {
    if (!patterns->is_object()) return malformed(schema, "patternProperties", "expected an object");
    for (const auto& [pattern, member] : patterns->as_object()) {
      auto keys = parse_regex(pool_, pattern, RegexDialect::kEcma);
      if (!keys.ok()) return keys.status().prefixed("patternProperties at " + document_.path_of(schema));
      rule.every.push_back({{*keys, {}}, terms_.schema(member)});
      rule.evaluated.patterns.push_back(*keys);
    }
  }
  if (const Json* additional = schema.find("additionalProperties")) {
    if (!additional->is_object() && !additional->is_bool())
      return malformed(schema, "additionalProperties", "expected a schema");
    KeySet others;
    for (const auto& [name, term] : rule.named) others.except.insert(name);
    for (const RegexId keys : rule.evaluated.patterns) others.keys = pool_.both(others.keys, pool_.negated(keys));
    if (const TermId term = terms_.schema(*additional); term != kTrueTerm) rule.every.push_back({others, term});
    rule.evaluated.all = true;
  }
  if (const Json* names = keyword(schema, "propertyNames")) {
    ASSIGN_OR_RETURN(const Form* form, form_of(terms_.schema(*names)));
    if (form->string != RegexPool::kAny) rule.every.push_back({{pool_.negated(form->string), {}}, kFalseTerm});
  }
  return rule;
}

Result<ArrayRule> SchemaReader::read_array(const Json& schema) {
  ArrayRule rule;
  ASSIGN_OR_RETURN(rule.min, count(schema, "minItems", 0));
  ASSIGN_OR_RETURN(rule.max, count(schema, "maxItems", ~0u));
  const Json* prefix = keyword(schema, "prefixItems");
  const Json* items = schema.find("items");
  const Json* rest = items;
  if (items != nullptr && items->is_array()) {  // up to draft 2019-09
    prefix = items;
    rest = schema.find("additionalItems");
  }
  if (prefix != nullptr) {
    if (!prefix->is_array()) return malformed(schema, "prefixItems", "expected an array of schemas");
    for (const Json& item : prefix->as_array()) rule.prefix.push_back(terms_.schema(item));
    rule.num_evaluated = static_cast<uint32_t>(rule.prefix.size());
  }
  if (rest != nullptr) {
    if (!rest->is_object() && !rest->is_bool()) return malformed(schema, "items", "expected a schema");
    rule.rest = terms_.schema(*rest);
    rule.all_evaluated = true;
  }
  TRY(read_contains(schema, rule));
  TRY(read_uniqueness(schema, rule));
  return rule;
}

Status SchemaReader::read_contains(const Json& schema, ArrayRule& rule) {
  const Json* wanted = keyword(schema, "contains");
  if (wanted == nullptr) return {};
  ASSIGN_OR_RETURN(const uint32_t min, count(schema, "minContains", 1));
  ASSIGN_OR_RETURN(const uint32_t max, count(schema, "maxContains", ~0u));
  if (min > max) {
    rule.max = 0;
    rule.min = 1;
    return {};
  }
  if (document_.draft() == SchemaDraft::kDraft2020) rule.evaluates_contained = true;
  if (min > 0 || max != ~0u) rule.some.push_back({terms_.schema(*wanted), 0, min, max});
  return {};
}

Status SchemaReader::read_uniqueness(const Json& schema, ArrayRule& rule) {
  const Json* unique = schema.find("uniqueItems");
  if (unique == nullptr) return {};
  if (!unique->is_bool()) return malformed(schema, "uniqueItems", "expected a boolean");
  rule.is_unique = unique->as_bool();
  return {};
}

}  // namespace deepinfer
