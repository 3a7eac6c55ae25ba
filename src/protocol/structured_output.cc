// SPDX-License-Identifier: MIT
#include "protocol/structured_output.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "chat/json_spelling.h"
#include "protocol/request_body.h"

namespace deepinfer {
namespace {

using Kind = OutputConstraint::Kind;

constexpr JsonSpelling kCompact{NumberSpelling::kPlain, false};

struct Wish {
  std::string path;
  OutputConstraint constraint;
};

// One field of either spelling.
struct Source {
  const char* name;    // inside structured_outputs
  const char* guided;  // at the top level; null: none
  Kind kind;
};
constexpr Source kSources[] = {{"json", "guided_json", Kind::kJson},
                               {"regex", "guided_regex", Kind::kRegex},
                               {"choice", "guided_choice", Kind::kChoice},
                               {"grammar", "guided_grammar", Kind::kEbnf},
                               {"json_object", "guided_json_object", Kind::kJson}};

// What SGLang's and llama.cpp's clients call the same, at the top level.
constexpr std::pair<const char*, const Source*> kElsewhere[] = {
    {"json_schema", &kSources[0]}, {"regex", &kSources[1]}, {"ebnf", &kSources[3]}, {"grammar", &kSources[3]}};

Shape shape_of(const Source& source) {
  if (source.kind == Kind::kChoice) return Shape::list(Shape::text());
  if (source.kind != Kind::kJson) return Shape::text();
  return std::string_view(source.name) == "json" ? Shape::any() : Shape::boolean();
}

// A schema as an object, or as its text.
Refusal read_schema(Json& value, const std::string& path, std::string& out) {
  if (value.is_string()) {
    JsonLimits limits;
    limits.wide_integers = true;
    limits.refuse_duplicate_keys = false;
    const auto parsed = parse_json(value.as_string(), limits);
    if (!parsed.ok()) return refuse(fmt::format("{}: {}", path, parsed.status().message()), path);
    out = spelled_json(parsed.value(), kCompact);
    return {};
  }
  if (!value.is_object() && !value.is_bool())
    return refuse(fmt::format("{}: expected a JSON Schema as an object or as text", path), path);
  out = spelled_json(value, kCompact);
  return {};
}

Refusal read_choice(const Json& value, const std::string& path, std::string& out) {
  if (value.as_array().empty()) return refuse(fmt::format("{}: expected at least one text", path), path);
  out = spelled_json(value, kCompact);
  return {};
}

Refusal read_wish(Json& value, const Source& source, std::string path, std::vector<Wish>& out) {
  if (source.kind == Kind::kJson && value.is_bool() && std::string_view(source.name) == "json_object") {
    if (value.as_bool()) out.push_back({std::move(path), {Kind::kJson, ""}});
    return {};
  }
  Wish wish{std::move(path), {source.kind, ""}};
  if (source.kind == Kind::kJson) REFUSE_IF(read_schema(value, wish.path, wish.constraint.schema));
  else if (source.kind == Kind::kChoice) REFUSE_IF(read_choice(value, wish.path, wish.constraint.schema));
  else wish.constraint.schema = std::move(value.as_string());
  out.push_back(std::move(wish));
  return {};
}

Refusal refuse_part(const std::string& path) { return refuse(fmt::format("{} is not supported", path), path); }

}  // namespace

std::vector<Shape::Field> structured_output_fields() {
  std::vector<Shape::Field> fields, inner;
  for (const Source& source : kSources) {
    fields.push_back({source.guided, shape_of(source)});
    inner.push_back({source.name, shape_of(source)});
  }
  for (const auto& [name, source] : kElsewhere) fields.push_back({name, shape_of(*source)});
  for (const char* name : {"whitespace_pattern", "structural_tag"}) inner.push_back({name, Shape::any()});
  for (const char* name : {"disable_any_whitespace", "disable_fallback", "disable_additional_properties"})
    inner.push_back({name, Shape::boolean()});
  inner.push_back({"close_at_max_tokens", Shape::boolean()});
  fields.push_back({"structured_outputs", Shape::record(std::move(inner))});
  fields.push_back({"guided_whitespace_pattern", Shape::any()});
  return fields;
}

Refusal read_structured_output(Json& request, const RequestLimits& limits, ChatRequest& chat) {
  std::vector<Wish> wishes;
  for (const Source& source : kSources)
    if (Json* value = member(request, source.guided)) REFUSE_IF(read_wish(*value, source, source.guided, wishes));
  for (const auto& [name, source] : kElsewhere) {
    Json* value = member(request, name);
    const bool is_none = value && value->is_string() && value->as_string().empty();  // llama.cpp's default
    if (value && !is_none) REFUSE_IF(read_wish(*value, *source, name, wishes));
  }
  if (member(request, "guided_whitespace_pattern")) return refuse_part("guided_whitespace_pattern");
  InferenceOptions& inference = chat.inference;
  if (Json* outputs = member(request, "structured_outputs")) {
    for (const Source& source : kSources)
      if (Json* value = member(*outputs, source.name))
        REFUSE_IF(read_wish(*value, source, std::string("structured_outputs.") + source.name, wishes));
    for (const char* name : {"whitespace_pattern", "structural_tag"})
      if (member(*outputs, name)) return refuse_part(std::string("structured_outputs.") + name);
    if (flag_member(*outputs, "disable_additional_properties"))
      return refuse_part("structured_outputs.disable_additional_properties");
    inference.without_space = flag_member(*outputs, "disable_any_whitespace");
    inference.closes_at_max_tokens = flag_member(*outputs, "close_at_max_tokens");
  }
  if (wishes.empty()) return {};
  Wish& wish = wishes[0];
  if (wishes.size() > 1)
    return refuse(fmt::format("{} and {}: only one form of the answer can be asked for", wish.path, wishes[1].path),
                  wishes[1].path);
  if (chat.conversation.response_format.kind != ResponseFormat::Kind::kText)
    return refuse(fmt::format("{} does not go with response_format: both say what the answer must be", wish.path),
                  wish.path);
  if (wish.constraint.schema.size() > limits.tool_schema_bytes_max)
    return refuse(fmt::format("{} has {} bytes, at most {} are accepted", wish.path, wish.constraint.schema.size(),
                              limits.tool_schema_bytes_max),
                  wish.path);
  wish.constraint.path = wish.path;
  (inference.constraint ? inference.content_constraint : inference.constraint) = std::move(wish.constraint);
  return {};
}

}  // namespace deepinfer
