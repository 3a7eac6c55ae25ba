// SPDX-License-Identifier: MIT
#include "grammar/schema_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>

namespace deepinfer {
namespace {

constexpr std::array kSchemaMaps = {"properties",  "patternProperties", "$defs",
                                    "definitions", "dependentSchemas",  "dependencies"};
constexpr std::array kSchemas = {"additionalProperties",
                                 "additionalItems",
                                 "unevaluatedProperties",
                                 "unevaluatedItems",
                                 "items",
                                 "contains",
                                 "propertyNames",
                                 "not",
                                 "if",
                                 "then",
                                 "else",
                                 "prefixItems",
                                 "allOf",
                                 "anyOf",
                                 "oneOf",
                                 "contentSchema"};

bool is_in(const auto& names, std::string_view key) { return std::ranges::find(names, key) != names.end(); }

std::string escaped_token(std::string_view key) {
  std::string out;
  for (const char c : key) {
    if (c == '~') out += "~0";
    else if (c == '/') out += "~1";
    else out += c;
  }
  return out;
}

std::string percent_decoded(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) {
      const char c = at < text.size() ? text[at] : ' ';
      return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
    };
    if (text[i] == '%' && digit(i + 1) >= 0 && digit(i + 2) >= 0) {
      out += static_cast<char>(digit(i + 1) * 16 + digit(i + 2));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

// RFC 3986 5.2.4.
std::string without_dots(std::string_view path) {
  std::vector<std::string_view> parts;
  const bool is_absolute = path.starts_with("/");
  const bool ends_open =
      path.ends_with("/") || path.ends_with("/.") || path.ends_with("/..") || path == "." || path == "..";
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find('/', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    if (part == "..") {
      if (!parts.empty()) parts.pop_back();
    } else if (part != "." && !part.empty()) {
      parts.push_back(part);
    }
    at = end + 1;
  }
  std::string out = is_absolute ? "/" : "";
  for (size_t i = 0; i < parts.size(); ++i) out += (i > 0 ? "/" : "") + std::string(parts[i]);
  if (ends_open && !parts.empty()) out += "/";
  return out;
}

// RFC 3986 5.2.2 without fragments and queries of the base.
std::string absolute_uri(const std::string& base, const std::string& ref) {
  if (ref.empty()) return base;
  const size_t colon = ref.find(':');
  if (colon != std::string::npos && colon > 0 && ref.find_first_of("/?#") > colon) return ref;
  const size_t scheme_end = base.find(':');
  if (scheme_end == std::string::npos)
    return ref.starts_with("/") || base.empty() ? ref : without_dots(base.substr(0, base.rfind('/') + 1) + ref);
  const std::string scheme = base.substr(0, scheme_end + 1);
  if (ref.starts_with("//")) return scheme + ref;
  std::string authority, path = base.substr(scheme_end + 1);
  if (path.starts_with("//")) {
    const size_t end = std::min(path.find('/', 2), path.size());
    authority = path.substr(0, end);
    path = path.substr(end);
  }
  if (ref.starts_with("/")) return scheme + authority + without_dots(ref);
  const std::string folder = path.substr(0, path.rfind('/') + 1);
  return scheme + authority + without_dots((folder.empty() && !authority.empty() ? "/" : folder) + ref);
}

std::optional<SchemaDraft> draft_named(std::string_view uri) {
  if (uri.find("json-schema.org") == std::string_view::npos) return std::nullopt;
  if (uri.find("draft-04") != std::string_view::npos || uri.find("draft-03") != std::string_view::npos)
    return SchemaDraft::kDraft4;
  if (uri.find("draft-06") != std::string_view::npos) return SchemaDraft::kDraft6;
  if (uri.find("draft-07") != std::string_view::npos) return SchemaDraft::kDraft7;
  if (uri.find("2019-09") != std::string_view::npos) return SchemaDraft::kDraft2019;
  if (uri.find("2020-12") != std::string_view::npos) return SchemaDraft::kDraft2020;
  return std::nullopt;
}

}  // namespace

Result<SchemaDocument> SchemaDocument::open(const Json& schema) {
  SchemaDocument document;
  document.root_ = &schema;
  if (const Json* name = schema.find("$schema"); name != nullptr && name->is_string()) {
    if (const auto draft = draft_named(name->as_string())) {
      document.draft_ = *draft;
      document.states_draft_ = true;
    } else if (name->as_string().find("json-schema.org") == std::string::npos) {
      return unimplemented("$schema at #: unknown meta-schema \"" + name->as_string() + "\"");
    }
  }
  document.resources_.emplace("", &schema);
  TRY(document.index_schema(schema, "#", ""));
  return document;
}

std::string SchemaDocument::path_of(const Json& schema) const {
  const auto place = places_.find(&schema);
  return place == places_.end() ? "#" : place->second.path;
}

Status SchemaDocument::index_identifiers(const Json& schema, std::string& base) {
  const bool is_legacy = states_draft_ && draft_ <= SchemaDraft::kDraft7;
  if (is_legacy && schema.find("$ref") != nullptr) return {};
  const Json* id = schema.find("$id");
  if (id == nullptr && (!states_draft_ || draft_ == SchemaDraft::kDraft4)) id = schema.find("id");
  if (id != nullptr && id->is_string()) {
    const std::string& text = id->as_string();
    const size_t hash = text.find('#');
    const std::string uri = absolute_uri(base, text.substr(0, hash));
    if (hash != std::string::npos && hash + 1 < text.size()) { anchors_.emplace(uri + text.substr(hash), &schema); }
    if (hash != 0 && !text.empty()) {
      base = uri;
      resources_.emplace(base, &schema);
    }
  }
  for (const char* key : {"$anchor", "$dynamicAnchor"}) {
    const Json* anchor = schema.find(key);
    if (anchor == nullptr || !anchor->is_string()) continue;
    anchors_.emplace(base + "#" + anchor->as_string(), &schema);
    if (key[1] == 'd') ++dynamic_anchors_[anchor->as_string()];
  }
  return {};
}

Status SchemaDocument::index_schema(const Json& schema, const std::string& path, std::string base) {
  if (!schema.is_object()) {
    places_.emplace(&schema, Place{path, base});
    return {};
  }
  TRY(index_identifiers(schema, base));
  if (!places_.emplace(&schema, Place{path, base}).second) return {};
  for (const auto& [key, value] : schema.as_object()) {
    keywords_.emplace(key, 1);
    TRY(index_children(key, value, path + "/" + escaped_token(key), base));
  }
  return {};
}

Status SchemaDocument::index_children(const std::string& key, const Json& value, const std::string& path,
                                      const std::string& base) {
  if (is_in(kSchemaMaps, key) && value.is_object()) {
    for (const auto& [name, child] : value.as_object())
      if (child.is_object() || child.is_bool()) TRY(index_schema(child, path + "/" + escaped_token(name), base));
  } else if (is_in(kSchemas, key)) {
    if (value.is_array()) {
      for (size_t i = 0; i < value.as_array().size(); ++i)
        TRY(index_schema(value.as_array()[i], fmt::format("{}/{}", path, i), base));
    } else {
      TRY(index_schema(value, path, base));
    }
  }
  return {};
}

Result<const Json*> SchemaDocument::follow_pointer(const Json& root, std::string_view pointer,
                                                   const std::string& base) {
  const Json* at = &root;
  std::string path = path_of(root), at_base = base;
  while (!pointer.empty()) {
    if (pointer[0] != '/') return invalid_argument("is no JSON pointer");
    const size_t end = std::min(pointer.find('/', 1), pointer.size());
    std::string token = percent_decoded(pointer.substr(1, end - 1));
    pointer.remove_prefix(end);
    for (size_t i = 0; (i = token.find('~', i)) != std::string::npos; ++i)
      token.replace(i, 2, i + 1 < token.size() && token[i + 1] == '1' ? "/" : "~");
    const Json* next = nullptr;
    if (at->is_array()) {
      const bool is_index =
          !token.empty() && token.size() < 9 && token.find_first_not_of("0123456789") == std::string::npos;
      const size_t index = is_index ? std::stoul(token) : SIZE_MAX;
      if (index < at->as_array().size()) next = &at->as_array()[index];
    } else {
      next = at->find(token);
    }
    if (next == nullptr) return invalid_argument(fmt::format("leads nowhere: no \"{}\" at {}", token, path));
    at = next;
    path += "/" + escaped_token(token);
    if (const auto place = places_.find(at); place != places_.end()) at_base = place->second.base;
  }
  if (!at->is_object() && !at->is_bool()) return invalid_argument("leads to no schema");
  if (!places_.contains(at)) TRY(index_schema(*at, path, at_base));
  return at;
}

Result<const Json*> SchemaDocument::resolve(const Json& from, std::string_view keyword, const std::string& ref) {
  if (keyword != "$ref" && depends_on_caller(ref))
    return unimplemented(fmt::format("{} at {}: its target depends on the dynamic scope", keyword, path_of(from)));
  const auto place = places_.find(&from);
  const std::string base = place == places_.end() ? "" : place->second.base;
  const auto failed = [&](const std::string& why) {
    return invalid_argument(fmt::format("{} at {}: \"{}\" {}", keyword, path_of(from), ref, why));
  };
  const size_t hash = ref.find('#');
  const std::string uri = absolute_uri(base, ref.substr(0, hash));
  const std::string fragment = hash == std::string::npos ? "" : ref.substr(hash + 1);
  auto resource = resources_.find(uri);
  if (resource == resources_.end() && (uri.ends_with("/") || uri.ends_with("#")))
    resource = resources_.find(uri.substr(0, uri.size() - 1));
  if (!fragment.empty() && fragment[0] != '/') {
    const auto anchor = anchors_.find(uri + "#" + percent_decoded(fragment));
    if (anchor != anchors_.end()) return anchor->second;
    return failed("names no anchor of this document");
  }
  if (resource == resources_.end())
    return unimplemented(fmt::format("{} at {}: \"{}\" is not part of this document, and nothing is fetched", keyword,
                                     path_of(from), ref));
  auto target = follow_pointer(*resource->second, fragment, uri);
  if (!target.ok()) return failed(target.status().message());
  return target;
}

bool SchemaDocument::depends_on_caller(const std::string& ref) const {
  const size_t hash = ref.find('#');
  const auto known = dynamic_anchors_.find(hash == std::string::npos ? "" : ref.substr(hash + 1));
  return (known != dynamic_anchors_.end() && (known->second > 1 || resources_.size() > 2)) || uses("$recursiveAnchor");
}

}  // namespace deepinfer
