// SPDX-License-Identifier: MIT
#include "chat/strict_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace deepinfer {

namespace {

constexpr std::string_view kToolPrefix = "Invalid tool parameters schema : ";
constexpr std::string_view kFormatPrefix = "Invalid json schema: ";

enum class Value { kText, kTextList, kTextFormat, kBool, kInteger, kNumber, kSchema };

struct Keyword {
  std::string_view name;
  Value value;
};

// The keywords of each simple type, in the order they are written.
constexpr Keyword kStringKeywords[] = {{"description", Value::kText},
                                       {"pattern", Value::kText},
                                       {"format", Value::kTextFormat},
                                       {"enum", Value::kTextList}};
constexpr std::string_view kNumberKeywords[] = {
    "const", "default", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"};
constexpr std::string_view kFormats[] = {"email", "hostname", "ipv4", "ipv6", "uuid"};
constexpr std::string_view kSimpleTypes[] = {"string", "number", "integer", "boolean", "null"};
// Where definitions may stand. The first is the original's own spelling, the others are JSON Schema's.
constexpr std::string_view kDefinitions[] = {"$def", "$defs", "definitions"};

template <size_t n>
bool is_one_of(std::string_view text, const std::string_view (&words)[n]) {
  return std::find(std::begin(words), std::end(words), text) != std::end(words);
}

const Json* present(const Json& object, std::string_view key) {
  const Json* value = object.find(key);
  return value && !value->is_null() ? value : nullptr;
}

// First pass: does the schema have the form at all? Copies what the form knows, in the form's order.
class FormReader {
 public:
  Result<Json> read(const Json& schema) const {
    const Json* type = schema.find("type");
    if (type && type->is_array()) return read_type_list(schema, *type);
    if (type)
      return type->is_string() ? read_typed(schema, type->as_string())
                               : Result<Json>(invalid_argument("`type` is no type name"));
    if (const Json* choices = schema.find("anyOf")) return read_any_of(schema, *choices);
    if (const Json* reference = schema.find("$ref")) {
      if (!reference->is_string()) return invalid_argument("field `$ref`: a string was expected");
      return Json(Json::Object{{"$ref", *reference}});
    }
    return invalid_argument("one of `type`, `anyOf`, `$ref` field is required");
  }

 private:
  static Status expect(const Json& value, Value wanted, std::string_view key) {
    const auto wrong = [&](const char* what) {
      return invalid_argument(fmt::format("`{}`: {} was expected", key, what));
    };
    switch (wanted) {
      case Value::kText: return value.is_string() ? Status() : wrong("a string");
      case Value::kBool: return value.is_bool() ? Status() : wrong("a boolean");
      case Value::kInteger: return value.kind() == Json::Kind::kInt ? Status() : wrong("a 64-bit integer");
      case Value::kNumber: return value.is_number() ? Status() : wrong("a number");
      case Value::kTextFormat:
        return value.is_string() && is_one_of(value.as_string(), kFormats)
                   ? Status()
                   : wrong("one of email, hostname, ipv4, ipv6, uuid");
      case Value::kTextList:
        if (!value.is_array()) return wrong("a list of strings");
        for (const Json& item : value.as_array())
          if (!item.is_string()) return wrong("a list of strings");
        return {};
      case Value::kSchema: return {};
    }
    return {};
  }

  static Status copy(const Json& from, std::string_view key, Value wanted, Json& to) {
    const Json* value = present(from, key);
    if (!value) return {};
    TRY(expect(*value, wanted, key));
    to.set(key, *value);
    return {};
  }

  Result<Json> read_type_list(const Json& schema, const Json& types) const {
    for (const Json& type : types.as_array())
      if (!type.is_string() || !is_one_of(type.as_string(), kSimpleTypes))
        return invalid_argument("field `type`: a list may name simple types only");
    Json out(Json::Object{{"type", types}});
    TRY(copy(schema, "description", Value::kText, out));
    return out;
  }

  Result<Json> read_typed(const Json& schema, const std::string& type) const {
    Json out(Json::Object{{"type", type}});
    if (type == "object") return read_object(schema, std::move(out));
    if (type == "array") {
      const Json* items = schema.find("items");
      if (!items) return invalid_argument("missing field `items`");
      ASSIGN_OR_RETURN(Json item, read(*items));
      out.set("items", std::move(item));
      TRY(copy(schema, "description", Value::kText, out));
      return out;
    }
    if (!is_one_of(type, kSimpleTypes)) return invalid_argument(fmt::format("unknown variant `{}` of `type`", type));
    if (type == "string") {
      for (const Keyword& keyword : kStringKeywords) TRY(copy(schema, keyword.name, keyword.value, out));
      return out;
    }
    TRY(copy(schema, "description", Value::kText, out));
    if (type == "number" || type == "integer")
      for (const std::string_view key : kNumberKeywords)
        TRY(copy(schema, key, type == "integer" ? Value::kInteger : Value::kNumber, out));
    return out;
  }

  Result<Json> read_any_of(const Json& schema, const Json& choices) const {
    if (!choices.is_array()) return invalid_argument("field `anyOf`: a list was expected");
    Json::Array read_choices;
    for (const Json& choice : choices.as_array()) {
      ASSIGN_OR_RETURN(Json each, read(choice));
      read_choices.push_back(std::move(each));
    }
    Json out(Json::Object{{"anyOf", std::move(read_choices)}});
    TRY(copy(schema, "description", Value::kText, out));
    return out;
  }

  Result<Json> read_members(const Json& members, std::string_view key) const {
    if (!members.is_object()) return invalid_argument(fmt::format("`{}`: an object was expected", key));
    Json::Object out;
    for (const auto& [name, member] : members.as_object()) {
      ASSIGN_OR_RETURN(Json each, read(member));
      out.emplace_back(name, std::move(each));
    }
    return Json(std::move(out));
  }

  Result<Json> read_object(const Json& schema, Json out) const {
    out.set("properties", Json::Object{});
    if (const Json* properties = present(schema, "properties")) {
      ASSIGN_OR_RETURN(Json members, read_members(*properties, "properties"));
      out.set("properties", std::move(members));
    }
    TRY(copy(schema, "additionalProperties", Value::kBool, out));
    TRY(copy(schema, "required", Value::kTextList, out));
    TRY(copy(schema, "description", Value::kText, out));
    for (const std::string_view key : kDefinitions) {
      const Json* definitions = present(schema, key);
      if (!definitions) continue;
      if (key != kDefinitions[0]) {
        out.set(key, *definitions);  // close_definitions reads them
        continue;
      }
      ASSIGN_OR_RETURN(Json members, read_members(*definitions, key));
      out.set(key, std::move(members));
    }
    return out;
  }
};

Status close_schema(Json& schema, bool top_level);

Status check_required(const Json& required, const Json::Object& properties) {
  std::unordered_set<std::string_view> names, seen;
  for (const auto& [name, property] : properties) names.insert(name);
  for (const Json& item : required.as_array()) {
    const std::string& name = item.as_string();
    if (!names.contains(name)) return invalid_argument(fmt::format("Required property '{}' not found in object", name));
    if (!seen.insert(name).second) return invalid_argument(fmt::format("Duplicate required property '{}'", name));
  }
  return seen.size() == names.size() ? Status()
                                     : invalid_argument("Required properties must match all properties in the object");
}

// Definitions outside the form's own `$def` were never read by the original, so what does not fit there is no reason to
// refuse: such an entry stays as the client wrote it.
Status close_definitions(Json& definitions, bool refuses) {
  if (!definitions.is_object()) return {};
  for (auto& [name, definition] : definitions.as_object()) {
    Result<Json> read = FormReader().read(definition);
    Status status = read.status();
    if (status.ok()) status = close_schema(*read, false);
    if (status.ok()) definition = std::move(read).value();
    else if (refuses) return status;
  }
  return {};
}

// Second pass: the rules of the closed form. `top_level` (the parameters of a tool) may have no properties.
Status close_object(Json& schema, bool top_level) {
  Json::Object& properties = schema.find("properties")->as_object();
  if (properties.empty() && !top_level) return invalid_argument("An object with no properties is not allowed.");
  for (auto& [name, property] : properties) TRY(close_schema(property, false));
  if (const Json* required = schema.find("required")) TRY(check_required(*required, properties));
  if (const Json* additional = schema.find("additionalProperties"); additional && additional->as_bool())
    return invalid_argument("additionalProperties should not be true");
  Json::Array names;
  for (const auto& [name, property] : properties) names.emplace_back(name);
  Json closed(Json::Object{{"type", "object"},
                           {"properties", Json(std::move(properties))},
                           {"additionalProperties", false},
                           {"required", std::move(names)}});
  if (Json* description = schema.find("description")) closed.set("description", std::move(*description));
  for (const std::string_view key : kDefinitions) {
    Json* definitions = schema.find(key);
    if (!definitions) continue;
    TRY(close_definitions(*definitions, key == kDefinitions[0]));
    closed.set(key, std::move(*definitions));
  }
  schema = std::move(closed);
  return {};
}

Status close_schema(Json& schema, bool top_level) {
  if (Json* choices = schema.find("anyOf"))
    for (Json& choice : choices->as_array()) TRY(close_schema(choice, false));
  const Json* type = schema.find("type");
  if (!type || !type->is_string()) return {};
  if (type->as_string() == "object" && schema.find("properties")) return close_object(schema, top_level);
  if (type->as_string() == "array")
    if (Json* items = schema.find("items")) return close_schema(*items, false);
  return {};
}

Result<Json> closed_form(const Json& schema, std::string_view prefix, const char* not_an_object, bool may_be_empty) {
  Result<Json> read = FormReader().read(schema);
  if (!read.ok()) return invalid_argument(std::string(prefix) + read.status().message());
  Json closed = std::move(read).value();
  const Json* type = closed.find("type");
  if (!type || !type->is_string() || type->as_string() != "object") return invalid_argument(not_an_object);
  TRY(close_schema(closed, may_be_empty));
  return closed;
}

}  // namespace

Result<Json> strict_tool_parameters(const Json& parameters) {
  if (parameters.is_null()) return strict_tool_parameters(Json::Object{{"type", "object"}});
  return closed_form(parameters, kToolPrefix, "The top level of the function parameters schema must be an object.",
                     true);
}

Result<Json> strict_response_schema(const Json& schema) {
  return closed_form(schema, kFormatPrefix, "The top level of the json schema must be an object.", false);
}

bool is_schema_shape_error(const Status& status) {
  return status.message().starts_with(kToolPrefix) || status.message().starts_with(kFormatPrefix);
}

}  // namespace deepinfer
