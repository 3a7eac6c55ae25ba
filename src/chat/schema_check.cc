// SPDX-License-Identifier: MIT
#include "chat/schema_check.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/utf8.h"
#include "chat/json_spelling.h"
#include "chat/pattern_syntax.h"

namespace deepinfer {

namespace {

enum Draft { k4 = 0, k6, k7, k2019, k2020 };

// What a keyword's value must be.
enum class Form {
  kSchema,
  kSchemaList,
  kSchemaMap,
  kPatternMap,
  kItems,
  kSchemaOrBool,
  kText,
  kReference,
  kId,
  kAnchor,
  kPattern,
  kCount,
  kNumber,
  kPositive,
  kBool,
  kNames,
  kNamesNotEmpty,
  kArray,
  kObject,
  kType,
  kDependencies,
  kNamesMap,
  kBoolMap
};

struct Keyword {
  std::string_view name;
  Draft first, last;
  Form form;
};

constexpr Keyword kKeywords[] = {{"properties", k4, k2020, Form::kSchemaMap},
                                 {"patternProperties", k4, k2020, Form::kPatternMap},
                                 {"additionalProperties", k4, k4, Form::kSchemaOrBool},
                                 {"additionalProperties", k6, k2020, Form::kSchema},
                                 {"propertyNames", k6, k2020, Form::kSchema},
                                 {"dependencies", k4, k2020, Form::kDependencies},
                                 {"dependentSchemas", k2019, k2020, Form::kSchemaMap},
                                 {"dependentRequired", k2019, k2020, Form::kNamesMap},
                                 {"unevaluatedProperties", k2019, k2020, Form::kSchema},
                                 {"unevaluatedItems", k2019, k2020, Form::kSchema},
                                 {"items", k4, k2019, Form::kItems},
                                 {"items", k2020, k2020, Form::kSchema},
                                 {"prefixItems", k2020, k2020, Form::kSchemaList},
                                 {"additionalItems", k4, k4, Form::kSchemaOrBool},
                                 {"additionalItems", k6, k2019, Form::kSchema},
                                 {"contains", k6, k2020, Form::kSchema},
                                 {"allOf", k4, k2020, Form::kSchemaList},
                                 {"anyOf", k4, k2020, Form::kSchemaList},
                                 {"oneOf", k4, k2020, Form::kSchemaList},
                                 {"not", k4, k2020, Form::kSchema},
                                 {"if", k7, k2020, Form::kSchema},
                                 {"then", k7, k2020, Form::kSchema},
                                 {"else", k7, k2020, Form::kSchema},
                                 {"contentSchema", k2019, k2020, Form::kSchema},
                                 {"definitions", k4, k2020, Form::kSchemaMap},
                                 {"$defs", k2019, k2020, Form::kSchemaMap},
                                 {"type", k4, k2020, Form::kType},
                                 {"enum", k4, k2020, Form::kArray},
                                 {"required", k4, k4, Form::kNamesNotEmpty},
                                 {"required", k6, k2020, Form::kNames},
                                 {"minimum", k4, k2020, Form::kNumber},
                                 {"maximum", k4, k2020, Form::kNumber},
                                 {"exclusiveMinimum", k4, k4, Form::kBool},
                                 {"exclusiveMinimum", k6, k2020, Form::kNumber},
                                 {"exclusiveMaximum", k4, k4, Form::kBool},
                                 {"exclusiveMaximum", k6, k2020, Form::kNumber},
                                 {"multipleOf", k4, k2020, Form::kPositive},
                                 {"minLength", k4, k2020, Form::kCount},
                                 {"maxLength", k4, k2020, Form::kCount},
                                 {"minItems", k4, k2020, Form::kCount},
                                 {"maxItems", k4, k2020, Form::kCount},
                                 {"minProperties", k4, k2020, Form::kCount},
                                 {"maxProperties", k4, k2020, Form::kCount},
                                 {"minContains", k2019, k2020, Form::kCount},
                                 {"maxContains", k2019, k2020, Form::kCount},
                                 {"uniqueItems", k4, k2020, Form::kBool},
                                 {"pattern", k4, k2020, Form::kPattern},
                                 {"format", k4, k2020, Form::kText},
                                 {"title", k4, k2020, Form::kText},
                                 {"description", k4, k2020, Form::kText},
                                 {"$comment", k7, k2020, Form::kText},
                                 {"examples", k6, k2020, Form::kArray},
                                 {"readOnly", k7, k2020, Form::kBool},
                                 {"writeOnly", k7, k2020, Form::kBool},
                                 {"deprecated", k2019, k2020, Form::kBool},
                                 {"contentMediaType", k6, k2020, Form::kText},
                                 {"contentEncoding", k6, k2020, Form::kText},
                                 {"$schema", k4, k2020, Form::kText},
                                 {"id", k4, k4, Form::kText},
                                 {"$id", k6, k7, Form::kReference},
                                 {"$id", k2019, k2020, Form::kId},
                                 {"$ref", k4, k2020, Form::kReference},
                                 {"$anchor", k2019, k2020, Form::kAnchor},
                                 {"$dynamicAnchor", k2020, k2020, Form::kAnchor},
                                 {"$dynamicRef", k2020, k2020, Form::kReference},
                                 {"$recursiveRef", k2019, k2020, Form::kReference},
                                 {"$recursiveAnchor", k2019, k2019, Form::kBool},
                                 {"$recursiveAnchor", k2020, k2020, Form::kAnchor},
                                 {"$vocabulary", k2019, k2020, Form::kBoolMap}};

std::optional<Draft> draft_of(std::string_view uri) {
  if (uri.ends_with('#')) uri.remove_suffix(1);
  if (uri.starts_with("https://")) uri.remove_prefix(8);
  else if (uri.starts_with("http://")) uri.remove_prefix(7);
  if (uri == "json-schema.org/draft-04/schema") return k4;
  if (uri == "json-schema.org/draft-06/schema") return k6;
  if (uri == "json-schema.org/draft-07/schema") return k7;
  if (uri == "json-schema.org/draft/2019-09/schema") return k2019;
  if (uri == "json-schema.org/draft/2020-12/schema" || uri == "json-schema.org/schema") return k2020;
  return std::nullopt;
}

// Characters RFC 3986 allows, with well-formed percent escapes.
bool is_uri_reference(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c == '%') {
      if (i + 2 >= text.size() || !std::isxdigit(static_cast<unsigned char>(text[i + 1])) ||
          !std::isxdigit(static_cast<unsigned char>(text[i + 2])))
        return false;
    } else if (!std::isalnum(c) && std::string_view("-._~:/?#[]@!$&'()*+,;=").find(text[i]) == std::string_view::npos) {
      return false;
    }
  }
  return text.find('#') == text.rfind('#');
}

bool is_anchor(std::string_view text) {
  if (text.empty() || !(std::isalpha(static_cast<unsigned char>(text[0])) || text[0] == '_')) return false;
  for (const char c : text)
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '-' && c != '.' && c != '_') return false;
  return true;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%' || i + 2 >= text.size()) {
      out.push_back(text[i]);
      continue;
    }
    const auto nibble = [](char c) { return c <= '9' ? c - '0' : (c | 32) - 'a' + 10; };
    out.push_back(static_cast<char>(nibble(text[i + 1]) * 16 + nibble(text[i + 2])));
    i += 2;
  }
  return out;
}

// RFC 6901 with the pointer still percent-encoded.
const Json* at_pointer(const Json& root, std::string_view pointer) {
  const Json* at = &root;
  while (at && !pointer.empty()) {
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    std::string key = percent_decoded(pointer.substr(1, end - 1));
    pointer.remove_prefix(end);
    for (size_t i = key.find('~'); i != std::string::npos; i = key.find('~', i + 1))
      if (i + 1 < key.size()) key.replace(i, 2, key[i + 1] == '1' ? "/" : "~");
    if (at->is_array()) {
      const bool is_index = !key.empty() && key.size() < 10 && key.find_first_not_of("0123456789") == std::string::npos;
      at = is_index && std::stoul(key) < at->as_array().size() ? &at->as_array()[std::stoul(key)] : nullptr;
    } else {
      at = at->find(key);
    }
  }
  return at;
}

// The address of `reference` seen from `base`, without its fragment. Enough of RFC 3986 for references inside a
// document.
std::string joined(std::string_view base, std::string_view reference) {
  reference = reference.substr(0, reference.find('#'));
  if (reference.empty()) return std::string(base);
  const size_t colon = reference.find(':'), slash = reference.find('/');
  if (colon != std::string_view::npos && (slash == std::string_view::npos || colon < slash))
    return std::string(reference);
  const size_t scheme = base.find("://");
  const size_t path = scheme == std::string_view::npos ? 0 : std::min(base.find('/', scheme + 3), base.size());
  if (reference[0] == '/') return std::string(base.substr(0, path)) + std::string(reference);
  const size_t last = base.rfind('/');
  const bool has_folder = last != std::string_view::npos && last >= path;
  return std::string(base.substr(0, has_folder ? last + 1 : path)) + (has_folder || path == 0 ? "" : "/") +
         std::string(reference);
}

bool is_whole(const Json& value, bool fraction_zero_counts) {
  if (value.is_integer()) return true;
  return fraction_zero_counts && value.is_number() && value.as_double() == std::floor(value.as_double());
}

class Checker {
 public:
  Checker(const Json& root, Draft draft) : root_(root), draft_(draft) {}

  Status check() {
    TRY(schema(root_, ""));
    index(root_, "", 0);
    TRY(external_references());
    return follow(root_, "");
  }

 private:
  Status wrong(const std::string& path, std::string_view expected, const Json& got) const {
    std::string text = spelled_json(got, {NumberSpelling::kPlain, false});
    if (text.size() > 120) text = std::string(utf8_prefix(text, 117)) + "...";
    return invalid_argument(fmt::format("{} is not {} (at {})", text, expected, path.empty() ? "the root" : path));
  }

  Status schema(const Json& value, const std::string& path) const {
    if (value.is_bool() && draft_ != k4) return {};
    if (!value.is_object()) return wrong(path, draft_ == k4 ? "an object" : "of types \"boolean\", \"object\"", value);
    for (const auto& [key, item] : value.as_object())
      for (const Keyword& keyword : kKeywords)
        if (keyword.name == key && keyword.first <= draft_ && draft_ <= keyword.last)
          TRY(form(keyword.form, item, path + "/" + key));
    if (draft_ == k4)
      for (const auto& [flag, bound] :
           {std::pair("exclusiveMinimum", "minimum"), std::pair("exclusiveMaximum", "maximum")})
        if (value.find(flag) && !value.find(bound))
          return wrong(path, fmt::format("complete: {} needs {}", flag, bound), value);
    return {};
  }

  Status schemas_of(const Json::Object& members, const std::string& path) const {
    for (const auto& [key, item] : members) TRY(schema(item, path + "/" + key));
    return {};
  }

  Status form(Form form, const Json& value, const std::string& path) const {
    switch (form) {
      case Form::kSchema: return schema(value, path);
      case Form::kSchemaOrBool: return value.is_bool() ? Status() : schema(value, path);
      case Form::kItems: return value.is_array() ? schema_list(value, path) : schema(value, path);
      case Form::kSchemaList: return schema_list(value, path);
      case Form::kSchemaMap:
        return value.is_object() ? schemas_of(value.as_object(), path) : wrong(path, "an object", value);
      case Form::kPatternMap: return pattern_map(value, path);
      case Form::kDependencies: return dependencies(value, path);
      case Form::kNamesMap:
      case Form::kBoolMap: return map_of(form == Form::kBoolMap ? Form::kBool : Form::kNames, value, path);
      case Form::kType: return type(value, path);
      case Form::kNames:
      case Form::kNamesNotEmpty: return names(value, path, form == Form::kNamesNotEmpty);
      case Form::kArray: return value.is_array() ? Status() : wrong(path, "an array", value);
      case Form::kObject: return value.is_object() ? Status() : wrong(path, "an object", value);
      case Form::kBool: return value.is_bool() ? Status() : wrong(path, "of type \"boolean\"", value);
      case Form::kNumber: return value.is_number() ? Status() : wrong(path, "of type \"number\"", value);
      case Form::kPositive:
        return value.is_number() && value.as_double() > 0 ? Status() : wrong(path, "a number above 0", value);
      case Form::kCount:
        return is_whole(value, draft_ != k4) && value.as_double() >= 0 ? Status()
                                                                       : wrong(path, "an integer of at least 0", value);
      default: return text_form(form, value, path);
    }
  }

  Status text_form(Form form, const Json& value, const std::string& path) const {
    if (!value.is_string()) return wrong(path, "of type \"string\"", value);
    const std::string& text = value.as_string();
    if (form == Form::kPattern) return check_pattern_syntax(text).ok() ? Status() : wrong(path, "a \"regex\"", value);
    if (form == Form::kAnchor) return is_anchor(text) ? Status() : wrong(path, "an anchor name", value);
    if (form == Form::kReference || form == Form::kId) {
      if (!is_uri_reference(text)) return wrong(path, "a URI reference", value);
      if (form == Form::kId && text.find('#') < text.size() - 1 && text.find('#') != std::string::npos)
        return wrong(path, "free of a fragment", value);
    }
    return {};
  }

  Status schema_list(const Json& value, const std::string& path) const {
    if (!value.is_array() || value.as_array().empty()) return wrong(path, "an array with at least 1 item", value);
    for (size_t i = 0; i < value.as_array().size(); ++i)
      TRY(schema(value.as_array()[i], fmt::format("{}/{}", path, i)));
    return {};
  }

  Status pattern_map(const Json& value, const std::string& path) const {
    if (!value.is_object()) return wrong(path, "an object", value);
    for (const auto& [key, item] : value.as_object()) {
      if (draft_ >= k6 && !check_pattern_syntax(key).ok()) return wrong(path, "a \"regex\"", key);
      TRY(schema(item, path + "/" + key));
    }
    return {};
  }

  Status dependencies(const Json& value, const std::string& path) const {
    if (!value.is_object()) return wrong(path, "an object", value);
    for (const auto& [key, item] : value.as_object())
      TRY(item.is_array() ? names(item, path + "/" + key, draft_ == k4) : schema(item, path + "/" + key));
    return {};
  }

  Status map_of(Form item_form, const Json& value, const std::string& path) const {
    if (!value.is_object()) return wrong(path, "an object", value);
    for (const auto& [key, item] : value.as_object()) TRY(form(item_form, item, path + "/" + key));
    return {};
  }

  Status names(const Json& value, const std::string& path, bool not_empty) const {
    if (!value.is_array()) return wrong(path, "of type \"array\"", value);
    if (not_empty && value.as_array().empty()) return wrong(path, "an array with at least 1 item", value);
    std::unordered_set<std::string_view> seen;
    for (const Json& item : value.as_array()) {
      if (!item.is_string()) return wrong(path, "of type \"string\"", item);
      if (!seen.insert(item.as_string()).second) return wrong(path, "free of repeated items", value);
    }
    return {};
  }

  Status type(const Json& value, const std::string& path) const {
    static const std::set<std::string_view> kTypes = {"array",  "boolean", "integer", "null",
                                                      "number", "object",  "string"};
    if (value.is_string() && kTypes.contains(value.as_string())) return {};
    if (!value.is_array() || value.as_array().empty()) return wrong(path, "a type name or a list of them", value);
    std::set<std::string_view> seen;
    for (const Json& item : value.as_array())
      if (!item.is_string() || !kTypes.contains(item.as_string()) || !seen.insert(item.as_string()).second)
        return wrong(path, "a type name or a list of them", value);
    return {};
  }

  // ---- references

  // Calls visit(subschema) for every schema directly inside `value`.
  template <typename Visit>
  void for_each_subschema(const Json& value, const Visit& visit) const {
    if (!value.is_object()) return;
    for (const auto& [key, item] : value.as_object())
      for (const Keyword& keyword : kKeywords) {
        if (keyword.name != key || draft_ < keyword.first || keyword.last < draft_) continue;
        if (keyword.form == Form::kSchema || keyword.form == Form::kSchemaOrBool ||
            (keyword.form == Form::kItems && !item.is_array()))
          visit(item, key);
        if (keyword.form == Form::kSchemaList || keyword.form == Form::kItems) {
          if (item.is_array())
            for (const Json& each : item.as_array()) visit(each, key);
        } else if (keyword.form == Form::kSchemaMap || keyword.form == Form::kPatternMap ||
                   keyword.form == Form::kDependencies) {
          if (item.is_object())
            for (const auto& [name, each] : item.as_object())
              if (!each.is_array()) visit(each, key);
        }
      }
  }

  const std::string* text_of(const Json& value, std::string_view key) const {
    const Json* found = value.find(key);
    return found && found->is_string() ? &found->as_string() : nullptr;
  }

  void index(const Json& value, const std::string& outer_base, int depth) {
    if (depth > 256 || !value.is_object()) return;
    std::string base = outer_base;
    if (const std::string* id = text_of(value, draft_ == k4 ? "id" : "$id");
        id && (draft_ >= k2019 || !text_of(value, "$ref"))) {
      if (draft_ < k2019 && id->starts_with('#')) anchors_.emplace(base + *id, &value);
      else base = joined(base, *id);
    }
    if (base != outer_base || depth == 0) resources_.emplace(base, &value);
    for (const char* key : {"$anchor", "$dynamicAnchor"})
      if (const std::string* name = text_of(value, key)) anchors_.emplace(base + "#" + *name, &value);
    for (const char* key : {"$ref", "$dynamicRef"})
      if (const std::string* reference = text_of(value, key)) references_.emplace_back(base, *reference);
    bases_.emplace(&value, base);
    for_each_subschema(value, [&](const Json& item, std::string_view) { index(item, base, depth + 1); });
  }

  bool is_meta_schema(const std::string& address) const {
    const auto draft = draft_of(address);
    return draft && *draft == draft_;
  }

  // Any reference, followed or not, that leaves the document is refused.
  Status external_references() const {
    for (const auto& [base, reference] : references_) {
      const std::string address = joined(base, reference);
      if (!resources_.contains(address) && !is_meta_schema(address))
        return invalid_argument(fmt::format("reference '{}' leads out of the schema; nothing is retrieved", reference));
    }
    return {};
  }

  Status target(const std::string& base, const std::string& reference, const Json*& found) const {
    const std::string address = joined(base, reference);
    const auto resource = resources_.find(address);
    if (resource == resources_.end()) return {};  // a meta-schema: known to be sound
    const size_t hash = reference.find('#');
    const std::string fragment = hash == std::string::npos ? "" : reference.substr(hash + 1);
    if (fragment.empty() || fragment[0] == '/') {
      found = at_pointer(*resource->second, fragment);
      return found ? Status() : invalid_argument(fmt::format("reference '{}': the pointer leads nowhere", reference));
    }
    const auto anchor = anchors_.find(address + "#" + fragment);
    if (anchor == anchors_.end()) return invalid_argument(fmt::format("reference '{}': no such anchor", reference));
    found = anchor->second;
    return {};
  }

  // Follows what a validator would compile: everything reachable from the root except definitions nobody refers to.
  Status follow(const Json& value, const std::string& outer_base) {
    if (!value.is_object() || !followed_.insert(&value).second) return {};
    const auto known = bases_.find(&value);
    const std::string base = known == bases_.end() ? outer_base : known->second;
    for (const char* key : {"$ref", "$dynamicRef"}) {
      const std::string* reference = text_of(value, key);
      if (!reference) continue;
      const Json* found = nullptr;
      TRY(target(base, *reference, found));
      if (!found) continue;
      TRY(schema(*found, *reference));
      TRY(follow(*found, base));
    }
    if (draft_ <= k7 && text_of(value, "$ref")) return {};  // siblings of a reference have no effect there
    const bool branches = value.find("if") && (value.find("then") || value.find("else"));  // else they say nothing
    const auto is_idle = [&](std::string_view key) {
      if (key == "if" || key == "then" || key == "else") return !branches;
      return key == "$defs" || key == "definitions" || key == "contentSchema";
    };
    Status status;
    for_each_subschema(value, [&](const Json& item, std::string_view key) {
      if (status.ok() && !is_idle(key)) status = follow(item, base);
    });
    return status;
  }

  const Json& root_;
  const Draft draft_;
  std::unordered_map<std::string, const Json*> resources_, anchors_;
  std::unordered_map<const Json*, std::string> bases_;
  std::vector<std::pair<std::string, std::string>> references_;  // base, reference
  std::unordered_set<const Json*> followed_;
};

}  // namespace

Status check_json_schema(const Json& schema) {
  Draft draft = k2020;
  if (const Json* uri = schema.find("$schema"); uri && uri->is_string()) {
    const auto known = draft_of(uri->as_string());
    if (!known)
      return invalid_argument(
          fmt::format("unknown meta-schema '{}'; drafts 4, 6, 7, 2019-09 and 2020-12 are known", uri->as_string()));
    draft = *known;
  }
  return Checker(schema, draft).check();
}

}  // namespace deepinfer
