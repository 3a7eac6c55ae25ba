// SPDX-License-Identifier: MIT
// Forms of the schemas of one document: every keyword either restricts the form or is refused with its name and path
// (unimplemented: valid but undecidable here or beyond a limit; invalid_argument: not a schema). Annotations mean
// nothing; unknown keywords mean nothing, as the drafts say. Source: JSON Schema validation 2020-12 and earlier drafts.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>

#include "base/json.h"
#include "base/status.h"
#include "grammar/number_language.h"
#include "grammar/schema_document.h"
#include "grammar/schema_form.h"
#include "grammar/schema_terms.h"

namespace deepinfer {

struct SchemaLimits {
  size_t rules_max = 512;     // alternatives of one object or array form
  size_t work_max = 400'000;  // rules made in all
  int depth_max = 300;        // of schemas read inside each other
};

class SchemaReader {
 public:
  SchemaReader(SchemaDocument document, RegexPool& pool, bool lenient, const SchemaLimits& limits = {});

  // The form of a term, cached. The pointer stays valid.
  Result<const Form*> form_of(TermId term);
  SchemaTerms& terms() { return terms_; }
  RegexPool& pool() { return pool_; }
  const SchemaDocument& document() const { return document_; }
  // True only when no value satisfies it; looks `depth` schemas deep.
  bool is_provably_empty(TermId term, int depth);
  bool is_provably_empty(const ObjectRule& rule, int depth);
  bool is_provably_empty(const ArrayRule& rule, int depth);
  // A form's numbers; with `digits_only` as answers write them: integers have no point, and where bounds, multiples and
  // complements meet there are no exponents, so that whether something is left can be decided.
  RegexId spelled(RegexId number, bool digits_only);
  // Whether the key is in the set.
  bool contains(const KeySet& keys, const std::string& key);

 private:
  enum Types : unsigned {
    kNull = 1,
    kTrue = 2,
    kFalse = 4,
    kNumber = 8,
    kInteger = 16,
    kString = 32,
    kObject = 64,
    kArray = 128
  };
  Result<Form> read_term(TermId term);
  Result<Form> read_schema(const Json& schema);
  Result<Form> read_constant(const Json& value);
  // Keywords that look at one type only.
  Result<Form> read_typed(const Json& schema);
  Result<unsigned> read_types(const Json& schema);
  Result<RegexId> read_number(const Json& schema, unsigned types);
  Result<RegexId> read_string(const Json& schema);
  Result<ObjectRule> read_object(const Json& schema);
  Result<ArrayRule> read_array(const Json& schema);
  Status read_contains(const Json& schema, ArrayRule& rule);
  Status read_uniqueness(const Json& schema, ArrayRule& rule);
  // Keywords that combine schemas.
  Status apply_applicators(const Json& schema, Form& form);
  Status apply_reference(const Json& schema, const char* keyword, Form& form);
  Status apply_enumeration(const Json& schema, Form& form);
  Status apply_all_of(const Json& schema, const Json& list, Form& form);
  Status apply_any_of(const Json& schema, const Json& list, Form& form);
  Status apply_one_of(const Json& schema, const Json& list, Form& form);
  Status apply_condition(const Json& schema, const Json& condition, Form& form);
  Status apply_dependencies(const Json& schema, const Json& dependencies, bool lists, bool schemas, Form& form);
  Status apply_unevaluated(const Json& schema, Form& form);

  Result<Form> both(const Form& a, const Form& b, const Json& at, const char* keyword);
  Result<Form> negated(const Form& form, const Json& at, const char* keyword);
  Result<Form> without(const Form& form, const Form& other, const Json& at, const char* keyword);
  Status unite(Form& into, const Form& other, const Json& at, const char* keyword);
  Form everything();
  ObjectRule both(const ObjectRule& a, const ObjectRule& b);
  ArrayRule both(const ArrayRule& a, const ArrayRule& b);
  std::vector<ObjectRule> negated(const ObjectRule& rule);
  Result<std::vector<ArrayRule>> negated(const ArrayRule& rule, const Json& at, const char* keyword);
  template <typename Rule>
  Status product(std::vector<Rule>& into, const std::vector<Rule>& other, const Json& at, const char* keyword);
  template <typename Rule>
  Status check_rules(const std::vector<Rule>& rules, const Json& at, const char* keyword);
  RegexId both_numbers(RegexId a, RegexId b);

  Status refuse(const Json& at, const char* keyword, const std::string& why) const;
  Status malformed(const Json& at, const char* keyword, const std::string& why) const;
  // A keyword's value, when this draft knows the keyword.
  const Json* keyword(const Json& schema, const char* name) const;
  Result<uint32_t> count(const Json& schema, const char* keyword, uint32_t fallback) const;

  SchemaDocument document_;
  RegexPool& pool_;
  bool lenient_;
  SchemaLimits limits_;
  SchemaTerms terms_;
  std::unordered_map<TermId, std::unique_ptr<Form>> forms_;
  std::unordered_map<TermId, Status> failures_;
  std::unordered_map<uint64_t, bool> empty_;
  std::unordered_map<std::string, RegexId> patterns_;
  std::set<TermId> open_;
  RegexId any_number_, any_integer_;
  size_t work_ = 0;
  int depth_ = 0;
  bool keeps_annotations_ = false;  // unevaluated* is used: anyOf then keeps every combination apart
};

}  // namespace deepinfer
