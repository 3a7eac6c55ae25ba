// SPDX-License-Identifier: MIT
// Interned boolean expressions over the schemas and constants of one document.
#pragma once

#include <map>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "grammar/schema_form.h"

namespace deepinfer {

class SchemaTerms {
 public:
  enum class Kind : uint8_t { kTrue, kFalse, kSchema, kConst, kAnd, kOr, kNot };
  struct Term {
    Kind kind;
    const Json* json = nullptr;  // kSchema, kConst
    std::vector<TermId> parts;
  };

  SchemaTerms() : terms_{{Kind::kTrue}, {Kind::kFalse}} {}
  TermId schema(const Json& json);
  TermId constant(const Json& json);
  TermId both(TermId a, TermId b) { return group(Kind::kAnd, {a, b}); }
  TermId all(std::vector<TermId> parts) { return group(Kind::kAnd, std::move(parts)); }
  TermId any(std::vector<TermId> parts) { return group(Kind::kOr, std::move(parts)); }
  TermId negated(TermId a);
  const Term& operator[](TermId id) const { return terms_[id]; }
  size_t size() const { return terms_.size(); }

 private:
  TermId group(Kind kind, std::vector<TermId> parts);
  std::vector<Term> terms_;
  std::unordered_map<const Json*, TermId> schemas_, constants_;
  std::map<std::pair<Kind, std::vector<TermId>>, TermId> groups_;
};

}  // namespace deepinfer
