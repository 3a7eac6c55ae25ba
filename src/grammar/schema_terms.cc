// SPDX-License-Identifier: MIT
#include "grammar/schema_terms.h"

#include <algorithm>

namespace deepinfer {

TermId SchemaTerms::schema(const Json& json) {
  if (json.is_bool()) return json.as_bool() ? kTrueTerm : kFalseTerm;
  if (json.is_object() && json.as_object().empty()) return kTrueTerm;
  const auto [at, is_new] = schemas_.emplace(&json, static_cast<TermId>(terms_.size()));
  if (is_new) terms_.push_back({Kind::kSchema, &json, {}});
  return at->second;
}

TermId SchemaTerms::constant(const Json& json) {
  const auto [at, is_new] = constants_.emplace(&json, static_cast<TermId>(terms_.size()));
  if (is_new) terms_.push_back({Kind::kConst, &json, {}});
  return at->second;
}

TermId SchemaTerms::negated(TermId a) {
  if (a <= kFalseTerm) return a == kTrueTerm ? kFalseTerm : kTrueTerm;
  if (terms_[a].kind == Kind::kNot) return terms_[a].parts[0];
  const auto [at, is_new] =
      groups_.emplace(std::pair(Kind::kNot, std::vector<TermId>{a}), static_cast<TermId>(terms_.size()));
  if (is_new) terms_.push_back({Kind::kNot, nullptr, {a}});
  return at->second;
}

TermId SchemaTerms::group(Kind kind, std::vector<TermId> parts) {
  const TermId neutral = kind == Kind::kAnd ? kTrueTerm : kFalseTerm;
  const TermId absorbing = kind == Kind::kAnd ? kFalseTerm : kTrueTerm;
  std::vector<TermId> flat;
  for (const TermId part : parts) {
    if (part == absorbing) return absorbing;
    if (terms_[part].kind == kind) flat.insert(flat.end(), terms_[part].parts.begin(), terms_[part].parts.end());
    else if (part != neutral) flat.push_back(part);
  }
  std::ranges::sort(flat);
  flat.erase(std::unique(flat.begin(), flat.end()), flat.end());
  for (const TermId part : flat)
    if (terms_[part].kind == Kind::kNot && std::ranges::binary_search(flat, terms_[part].parts[0])) return absorbing;
  if (flat.empty()) return neutral;
  if (flat.size() == 1) return flat[0];
  const auto [at, is_new] = groups_.emplace(std::pair(kind, flat), static_cast<TermId>(terms_.size()));
  if (is_new) terms_.push_back({kind, nullptr, flat});
  return at->second;
}

}  // namespace deepinfer
