// SPDX-License-Identifier: MIT
// A JSON Schema as written: its draft, the places of its subschemas, and where references lead. Nothing is fetched.
// Source: JSON Schema core 2020-12 sections 8 and 9, and the earlier drafts' spellings of the same.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "base/status.h"

namespace deepinfer {

enum class SchemaDraft { kDraft4 = 4, kDraft6 = 6, kDraft7 = 7, kDraft2019 = 2019, kDraft2020 = 2020 };

class SchemaDocument {
 public:
  // `schema` must outlive this object.
  static Result<SchemaDocument> open(const Json& schema);

  SchemaDraft draft() const { return draft_; }
  // "$schema" names the draft; else keywords of every draft are read and 2020-12 decides.
  bool states_draft() const { return states_draft_; }
  // Where `ref`, the value of `keyword` in `from`, leads: a schema of this document. $dynamicRef and $recursiveRef lead
  // somewhere as far as no other schema of the dynamic scope can take the target's place. Errors name the keyword and
  // the place of `from`.
  Result<const Json*> resolve(const Json& from, std::string_view keyword, const std::string& ref);
  // "#/properties/a" of a schema of this document.
  std::string path_of(const Json& schema) const;
  const Json& root() const { return *root_; }
  // Some schema of the document has this keyword.
  bool uses(std::string_view keyword) const { return keywords_.contains(std::string(keyword)); }

 private:
  struct Place {
    std::string path, base;
  };
  Status index_schema(const Json& schema, const std::string& path, std::string base);
  Status index_identifiers(const Json& schema, std::string& base);
  Status index_children(const std::string& key, const Json& value, const std::string& path, const std::string& base);
  bool depends_on_caller(const std::string& ref) const;
  Result<const Json*> follow_pointer(const Json& root, std::string_view pointer, const std::string& base);

  const Json* root_ = nullptr;
  SchemaDraft draft_ = SchemaDraft::kDraft2020;
  bool states_draft_ = false;
  std::unordered_map<const Json*, Place> places_;
  std::map<std::string, const Json*> resources_, anchors_;  // by absolute URI; anchors with "#name"
  std::map<std::string, int> dynamic_anchors_, keywords_;
};

}  // namespace deepinfer
