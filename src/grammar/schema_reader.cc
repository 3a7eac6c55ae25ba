// SPDX-License-Identifier: MIT
#include "grammar/schema_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/utf8.h"
#include "grammar/format_language.h"
#include "grammar/regex_syntax.h"

namespace deepinfer {
namespace {

struct Introduced {
  std::string_view keyword;
  SchemaDraft draft;
};
// Keywords that earlier drafts do not know, and so ignore.
constexpr std::array<Introduced, 16> kIntroduced = {{{"const", SchemaDraft::kDraft6},
                                                     {"contains", SchemaDraft::kDraft6},
                                                     {"propertyNames", SchemaDraft::kDraft6},
                                                     {"if", SchemaDraft::kDraft7},
                                                     {"dependentRequired", SchemaDraft::kDraft2019},
                                                     {"dependentSchemas", SchemaDraft::kDraft2019},
                                                     {"unevaluatedProperties", SchemaDraft::kDraft2019},
                                                     {"unevaluatedItems", SchemaDraft::kDraft2019},
                                                     {"minContains", SchemaDraft::kDraft2019},
                                                     {"maxContains", SchemaDraft::kDraft2019},
                                                     {"$recursiveRef", SchemaDraft::kDraft2019},
                                                     {"prefixItems", SchemaDraft::kDraft2020},
                                                     {"$dynamicRef", SchemaDraft::kDraft2020},
                                                     {"contentEncoding", SchemaDraft::kDraft7},
                                                     {"contentMediaType", SchemaDraft::kDraft7},
                                                     {"then", SchemaDraft::kDraft7}}};

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

bool is_whole_number(const Json& value) {
  return value.is_integer() || (value.is_number() && value.as_double() >= 0 && value.as_double() < 1e9 &&
                                value.as_double() == static_cast<double>(static_cast<int64_t>(value.as_double())));
}

}  // namespace

SchemaReader::SchemaReader(SchemaDocument document, RegexPool& pool, bool lenient, const SchemaLimits& limits)
    : document_(std::move(document)), pool_(pool), lenient_(lenient), limits_(limits) {
  any_number_ = any_number(pool_);
  any_integer_ = any_integer(pool_, !(document_.states_draft() && document_.draft() == SchemaDraft::kDraft4));
  keeps_annotations_ = document_.uses("unevaluatedProperties") || document_.uses("unevaluatedItems");
}

Status SchemaReader::refuse(const Json& at, const char* keyword, const std::string& why) const {
  return unimplemented(fmt::format("{} at {}: {}", keyword, document_.path_of(at), why));
}

Status SchemaReader::malformed(const Json& at, const char* keyword, const std::string& why) const {
  return invalid_argument(fmt::format("{} at {}: {}", keyword, document_.path_of(at), why));
}

const Json* SchemaReader::keyword(const Json& schema, const char* name) const {
  const Json* value = schema.find(name);
  if (value == nullptr || !document_.states_draft()) return value;
  for (const Introduced& known : kIntroduced)
    if (known.keyword == name && document_.draft() < known.draft) return nullptr;
  return value;
}

Result<uint32_t> SchemaReader::count(const Json& schema, const char* name, uint32_t fallback) const {
  const Json* value = keyword(schema, name);
  if (value == nullptr) return fallback;
  if (!is_whole_number(*value) || value->as_double() < 0)
    return malformed(schema, name, "expected a whole number that is not negative, found " + to_json(*value));
  return value->as_double() >= 4e9 ? ~0u - 1 : static_cast<uint32_t>(value->as_double());
}

Result<const Form*> SchemaReader::form_of(TermId term) {
  if (const auto known = forms_.find(term); known != forms_.end()) return known->second.get();
  if (const auto failed = failures_.find(term); failed != failures_.end()) return failed->second;
  if (open_.contains(term)) {
    const Json* json = terms_[term].json;
    return unimplemented(fmt::format("$ref at {}: refers to itself without a step into the value",
                                     json == nullptr ? "#" : document_.path_of(*json)));
  }
  if (depth_ >= limits_.depth_max) return unimplemented("schemas at #: nested too deeply");
  ++depth_;
  open_.insert(term);
  auto form = read_term(term);
  open_.erase(term);
  --depth_;
  if (!form.ok()) {
    if (open_.empty()) failures_.emplace(term, form.status());
    return form.status();
  }
  if (pool_.is_full()) return resource_exhausted("schema at #: needs more memory than the limit for a grammar");
  return (forms_[term] = std::make_unique<Form>(std::move(form).value())).get();
}

Form SchemaReader::everything() {
  return {true, true, true, any_number_, RegexPool::kAny, {ObjectRule{}}, {ArrayRule{}}};
}

Result<Form> SchemaReader::read_term(TermId id) {
  const SchemaTerms::Term term = terms_[id];
  switch (term.kind) {
    case SchemaTerms::Kind::kTrue: return everything();
    case SchemaTerms::Kind::kFalse: return Form{};
    case SchemaTerms::Kind::kSchema: return read_schema(*term.json);
    case SchemaTerms::Kind::kConst: return read_constant(*term.json);
    case SchemaTerms::Kind::kNot: {
      ASSIGN_OR_RETURN(const Form* form, form_of(term.parts[0]));
      const Json* json = terms_[term.parts[0]].json;
      return negated(*form, json == nullptr ? document_.root() : *json, "not");
    }
    case SchemaTerms::Kind::kAnd:
    case SchemaTerms::Kind::kOr: {
      ASSIGN_OR_RETURN(const Form* first, form_of(term.parts[0]));
      Form result = *first;
      for (size_t i = 1; i < term.parts.size(); ++i) {
        ASSIGN_OR_RETURN(const Form* next, form_of(term.parts[i]));
        const Json* json = terms_[term.parts[i]].json;
        const Json& at = json == nullptr ? document_.root() : *json;
        if (term.kind == SchemaTerms::Kind::kOr) {
          TRY(unite(result, *next, at, "anyOf"));
        } else {
          ASSIGN_OR_RETURN(result, both(result, *next, at, "allOf"));
        }
      }
      return result;
    }
  }
  return Form{};
}

Result<Form> SchemaReader::read_schema(const Json& schema) {
  if (!schema.is_object())
    return malformed(schema, "schema",
                     std::string("expected an object or a boolean, found ") + to_string(schema.kind()));
  if (const Json* name = schema.find("$schema");
      name != nullptr && &schema != &document_.root() && name->is_string() && schema.find("$id") != nullptr) {
    const Json* outer = document_.root().find("$schema");
    if (outer == nullptr || !(*outer == *name)) return refuse(schema, "$schema", "another draft inside the document");
  }
  const bool is_legacy = document_.states_draft() && document_.draft() <= SchemaDraft::kDraft7;
  if (const Json* ref = schema.find("$ref"); ref != nullptr && ref->is_string()) {
    if (is_legacy) {
      Form form = everything();
      TRY(apply_reference(schema, "$ref", form));
      return form;
    }
    static constexpr std::array kHarmless = {"$ref",      "$schema",    "title",       "description", "default",
                                             "examples",  "$comment",   "definitions", "$defs",       "readOnly",
                                             "writeOnly", "deprecated", "$anchor"};
    if (!document_.states_draft())
      for (const auto& [key, value] : schema.as_object())
        if (std::ranges::find(kHarmless, key) == kHarmless.end() && !key.starts_with("x-"))
          return refuse(schema, "$ref",
                        fmt::format("beside \"{}\": drafts up to 7 ignore it, later ones do not; state $schema", key));
  }
  ASSIGN_OR_RETURN(Form form, read_typed(schema));
  TRY(apply_applicators(schema, form));
  return form;
}

Result<Form> SchemaReader::read_constant(const Json& value) {
  Form form;
  switch (value.kind()) {
    case Json::Kind::kNull: form.admits_null = true; break;
    case Json::Kind::kBool: (value.as_bool() ? form.admits_true : form.admits_false) = true; break;
    case Json::Kind::kInt:
    case Json::Kind::kUint:
    case Json::Kind::kDouble: form.number = number_equal(pool_, Decimal::of(value)); break;
    case Json::Kind::kString: form.string = pool_.any_of({code_points(value.as_string())}); break;
    case Json::Kind::kArray: {
      ArrayRule rule;
      for (const Json& item : value.as_array()) rule.prefix.push_back(terms_.constant(item));
      rule.rest = kFalseTerm;
      rule.min = rule.max = static_cast<uint32_t>(rule.prefix.size());
      form.arrays.push_back(std::move(rule));
      break;
    }
    case Json::Kind::kObject: {
      ObjectRule rule;
      KeySet others;
      for (const auto& [key, member] : value.as_object()) {
        rule.named[key] = terms_.constant(member);
        rule.order.push_back(key);
        rule.required.insert(key);
        others.except.insert(key);
      }
      rule.every.push_back({others, kFalseTerm});
      form.objects.push_back(std::move(rule));
      break;
    }
  }
  return form;
}

Result<unsigned> SchemaReader::read_types(const Json& schema) {
  const Json* type = schema.find("type");
  if (type == nullptr) return kNull | kTrue | kFalse | kNumber | kInteger | kString | kObject | kArray;
  static const std::map<std::string, unsigned> kNames = {
      {"null", kNull},       {"boolean", kTrue | kFalse}, {"number", kNumber | kInteger},
      {"integer", kInteger}, {"string", kString},         {"object", kObject},
      {"array", kArray}};
  const Json::Array names = type->is_array() ? type->as_array() : Json::Array{*type};
  unsigned types = 0;
  for (const Json& name : names) {
    const auto known = name.is_string() ? kNames.find(name.as_string()) : kNames.end();
    if (known == kNames.end()) return malformed(schema, "type", "no such type: " + to_json(name));
    types |= known->second;
  }
  return types;
}

Result<Form> SchemaReader::read_typed(const Json& schema) {
  ASSIGN_OR_RETURN(const unsigned types, read_types(schema));
  Form form;
  form.admits_null = (types & kNull) != 0;
  form.admits_true = (types & kTrue) != 0;
  form.admits_false = (types & kFalse) != 0;
  if ((types & kInteger) != 0) { ASSIGN_OR_RETURN(form.number, read_number(schema, types)); }
  if ((types & kString) != 0) { ASSIGN_OR_RETURN(form.string, read_string(schema)); }
  if ((types & kObject) != 0) {
    ASSIGN_OR_RETURN(ObjectRule rule, read_object(schema));
    form.objects.push_back(std::move(rule));
  }
  if ((types & kArray) != 0) {
    ASSIGN_OR_RETURN(ArrayRule rule, read_array(schema));
    form.arrays.push_back(std::move(rule));
  }
  return form;
}

Result<RegexId> SchemaReader::read_number(const Json& schema, unsigned types) {
  RegexId result = (types & kNumber) != 0 ? any_number_ : any_integer_;
  for (const bool is_min : {true, false}) {
    const char* plain = is_min ? "minimum" : "maximum";
    const char* exclusive = is_min ? "exclusiveMinimum" : "exclusiveMaximum";
    const Json* bound = schema.find(plain);
    const Json* strict = schema.find(exclusive);
    const bool is_flag = strict != nullptr && strict->is_bool();
    const auto apply = [&](const Json& value, bool is_exclusive) {
      const NumberBound b{Decimal::of(value), is_exclusive};
      result = both_numbers(result, is_min ? number_at_least(pool_, b) : number_at_most(pool_, b));
    };
    if (bound != nullptr) {
      if (!bound->is_number()) return malformed(schema, plain, "expected a number, found " + to_json(*bound));
      apply(*bound, is_flag && strict->as_bool());
    }
    if (strict != nullptr && !is_flag && !(document_.states_draft() && document_.draft() == SchemaDraft::kDraft4)) {
      if (!strict->is_number()) return malformed(schema, exclusive, "expected a number, found " + to_json(*strict));
      apply(*strict, true);
    }
  }
  if (const Json* divisor = schema.find("multipleOf")) {
    if (!divisor->is_number()) return malformed(schema, "multipleOf", "expected a number, found " + to_json(*divisor));
    auto multiple = number_multiple_of(pool_, Decimal::of(*divisor));
    if (!multiple.ok()) return refuse(schema, "multipleOf", multiple.status().message());
    result = both_numbers(result, *multiple);
  }
  return result;
}

RegexId SchemaReader::both_numbers(RegexId a, RegexId b) {
  if (a == any_number_ && b == any_integer_) return b;
  if (b == any_number_ && a == any_integer_) return a;
  return pool_.both(a, b);
}

Result<RegexId> SchemaReader::read_string(const Json& schema) {
  ASSIGN_OR_RETURN(const uint32_t min, count(schema, "minLength", 0));
  ASSIGN_OR_RETURN(const uint32_t max, count(schema, "maxLength", RegexPool::kInfinite));
  if (max != RegexPool::kInfinite && min > max) return RegexId{RegexPool::kNone};
  std::vector<RegexId> parts{pool_.repeat(pool_.chars(CharSet::all()), min, max)};
  if (const Json* pattern = schema.find("pattern")) {
    if (!pattern->is_string()) return malformed(schema, "pattern", "expected a string, found " + to_json(*pattern));
    auto regex = parse_regex(pool_, pattern->as_string(), RegexDialect::kEcma);
    if (!regex.ok()) return regex.status().prefixed("pattern at " + document_.path_of(schema));
    parts.push_back(*regex);
  }
  if (const Json* format = schema.find("format"); format != nullptr && format->is_string()) {
    auto language = format_language(pool_, format->as_string(), lenient_);
    if (!language.ok()) return language.status().prefixed("format at " + document_.path_of(schema));
    if (language->has_value()) parts.push_back(**language);
  }
  for (const char* name : {"contentEncoding", "contentMediaType"})
    if (keyword(schema, name) != nullptr &&
        !(document_.states_draft() && document_.draft() >= SchemaDraft::kDraft2019) && !lenient_)
      return refuse(schema, name, "draft 7 lets it assert; state $schema of a later draft to make it an annotation");
  return pool_.both(std::move(parts));
}

RegexId SchemaReader::spelled(RegexId number, bool digits_only) {
  const bool point_zero = !(document_.states_draft() && document_.draft() == SchemaDraft::kDraft4);
  if (!digits_only || number == any_number_ || number == RegexPool::kNone) return number;
  if (number == any_integer_) return plain_integer(pool_, false);
  bool is_hard = false;
  const RegexId integer = plain_integer(pool_, point_zero), digits = plain_integer(pool_, false);
  const RegexId plain = pool_.without_exponents(number, any_integer_, digits, integer, is_hard);
  return is_hard ? pool_.both(plain_number(pool_), plain) : number;
}

bool SchemaReader::contains(const KeySet& keys, const std::string& key) {
  return !keys.except.contains(key) && pool_.matches(keys.keys, code_points(key));
}

}  // namespace deepinfer
