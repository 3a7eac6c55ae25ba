// SPDX-License-Identifier: MIT
// Shapes as JSON Schema.
#include "protocol/shape_node.h"

namespace deepinfer {
namespace {

Json typed(const char* type) { return Json::Object{{"type", type}}; }

Json any_of(Json::Array schemas) {
  if (schemas.size() == 1) return std::move(schemas[0]);
  return Json::Object{{"anyOf", std::move(schemas)}};
}

Json record_schema(const std::vector<Shape::Field>& fields) {
  Json::Object properties;
  Json::Array required;
  for (const Shape::Field& field : fields) {
    Json schema = field.shape.json_schema();
    const bool takes_null = !field.required && field.nullable && !schema.as_object().empty();
    if (takes_null) schema = any_of({std::move(schema), typed("null")});
    properties.emplace_back(field.name, std::move(schema));
    if (field.required) required.push_back(field.name);
  }
  Json::Object schema{{"type", "object"}, {"properties", std::move(properties)}};
  if (!required.empty()) schema.emplace_back("required", std::move(required));
  return schema;
}

Json variant_schema(const Shape::Node& node, const Shape::Variant& variant) {
  Json schema = record_schema(variant.fields);
  Json tag = Json::Object{{"const", variant.tag}};
  schema.find("properties")->set(node.tag, std::move(tag));
  if (variant.tag == node.untagged) return schema;
  if (schema.find("required") == nullptr) schema.set("required", Json::Array{});
  schema.find("required")->push_back(node.tag);
  return schema;
}

// An object with another tag is let through unread.
Json other_tag_schema(const Shape::Node& node) {
  Json::Array known;
  for (const Shape::Variant& variant : node.variants) known.push_back(variant.tag);
  Json tag = Json::Object{{"type", "string"}, {"not", Json::Object{{"enum", std::move(known)}}}};
  return Json::Object{{"type", "object"},
                      {"properties", Json::Object{{node.tag, std::move(tag)}}},
                      {"required", Json::Array{node.tag}}};
}

}  // namespace

Json Shape::json_schema() const {
  const Node& node = *node_;
  switch (node.kind) {
    case ShapeKind::kAny: return Json::Object{};
    case ShapeKind::kText: return typed("string");
    case ShapeKind::kBool: return typed("boolean");
    case ShapeKind::kNumber: return typed("number");
    case ShapeKind::kSigned: return Json::Object{{"type", "integer"}, {"minimum", INT64_MIN}, {"maximum", INT64_MAX}};
    case ShapeKind::kUnsigned: return Json::Object{{"type", "integer"}, {"minimum", 0}, {"maximum", node.most}};
    case ShapeKind::kWord: return Json::Object{{"enum", Json::Array(node.words.begin(), node.words.end())}};
    case ShapeKind::kList: return Json::Object{{"type", "array"}, {"items", node.parts[0].json_schema()}};
    case ShapeKind::kMap:
      return Json::Object{{"type", "object"}, {"additionalProperties", node.parts[0].json_schema()}};
    case ShapeKind::kRecord: return record_schema(node.fields);
    case ShapeKind::kEither: return any_of({node.parts[0].json_schema(), node.parts[1].json_schema()});
    case ShapeKind::kTagged: break;
  }
  Json::Array variants;
  for (const Variant& variant : node.variants) variants.push_back(variant_schema(node, variant));
  if (node.others_pass) variants.push_back(other_tag_schema(node));
  return any_of(std::move(variants));
}

}  // namespace deepinfer
