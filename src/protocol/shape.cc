// SPDX-License-Identifier: MIT
#include "protocol/shape.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "base/utf8.h"
#include "protocol/shape_node.h"

namespace deepinfer {

namespace {

using Kind = ShapeKind;
using Node = Shape::Node;

// A mismatch on its way out: the path is completed from the inside.
struct Mismatch {
  std::string path, expected, found;
};
using Check = std::optional<Mismatch>;

std::string described(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::kNull: return "null";
    case Json::Kind::kArray: return "a list";
    case Json::Kind::kObject: return "an object";
    default: break;
  }
  std::string text = to_json(value);
  if (text.size() > 40) text = std::string(utf8_prefix(text, 37)) + "...";
  return fmt::format("{} {}", to_string(value.kind()), text);
}

Check mismatch(std::string expected, const Json& value) { return Mismatch{"", std::move(expected), described(value)}; }

void prefix(Mismatch& mismatch, std::string_view outer) {
  const bool joins = mismatch.path.empty() || mismatch.path[0] == '[';
  mismatch.path = fmt::format("{}{}{}", outer, joins ? "" : ".", mismatch.path);
}

}  // namespace

// The recursion needs the private node of nested shapes.
struct ShapeChecker {
  static Check check(const Node& node, const Json& value) {
    switch (node.kind) {
      case Kind::kAny: return {};
      case Kind::kText: return value.is_string() ? Check() : mismatch("a string", value);
      case Kind::kBool: return value.is_bool() ? Check() : mismatch("a boolean", value);
      case Kind::kNumber: return value.is_number() ? Check() : mismatch("a number", value);
      case Kind::kSigned: return value.kind() == Json::Kind::kInt ? Check() : mismatch("a 64-bit integer", value);
      case Kind::kUnsigned: return check_unsigned(node, value);
      case Kind::kWord: return check_word(node, value);
      case Kind::kList: return check_list(node, value);
      case Kind::kMap: return check_map(node, value);
      case Kind::kRecord: return check_record(node.fields, value);
      case Kind::kTagged: return check_tagged(node, value);
      case Kind::kEither: return check_either(node, value);
    }
    return {};
  }

  static Check check(const Shape& shape, const Json& value);

  static Check check_unsigned(const Node& node, const Json& value) {
    const bool fits = value.is_integer() && (value.kind() == Json::Kind::kUint || value.as_int() >= 0) &&
                      value.as_uint() <= node.most;
    return fits ? Check() : mismatch(fmt::format("an integer from 0 to {}", node.most), value);
  }

  static Check check_word(const Node& node, const Json& value) {
    const bool known =
        value.is_string() && std::find(node.words.begin(), node.words.end(), value.as_string()) != node.words.end();
    return known ? Check() : mismatch(fmt::format("one of {}", fmt::join(node.words, ", ")), value);
  }

  static Check check_list(const Node& node, const Json& value) {
    if (!value.is_array()) return mismatch("a list", value);
    for (size_t i = 0; i < value.as_array().size(); ++i)
      if (Check bad = check(node.parts[0], value.as_array()[i])) {
        prefix(*bad, fmt::format("[{}]", i));
        return bad;
      }
    return {};
  }

  static Check check_map(const Node& node, const Json& value) {
    if (!value.is_object()) return mismatch("an object", value);
    for (const auto& [key, item] : value.as_object())
      if (Check bad = check(node.parts[0], item)) {
        prefix(*bad, key);
        return bad;
      }
    return {};
  }

  static Check check_record(const std::vector<Shape::Field>& fields, const Json& value) {
    if (!value.is_object()) return mismatch("an object", value);
    for (const Shape::Field& field : fields) {
      const Json* member = value.find(field.name);
      if (!member && field.required) return Mismatch{field.name, "a value", "nothing"};
      if (!member || (member->is_null() && !field.required && field.nullable)) continue;
      if (Check bad = check(field.shape, *member)) {
        prefix(*bad, field.name);
        return bad;
      }
    }
    return {};
  }

  static Check check_tagged(const Node& node, const Json& value) {
    if (!value.is_object()) return mismatch("an object", value);
    const Json* tag = value.find(node.tag);
    if (!tag && node.untagged.empty()) return Mismatch{node.tag, "a value", "nothing"};
    if (tag && !tag->is_string()) {
      Check bad = mismatch("a string", *tag);
      prefix(*bad, node.tag);
      return bad;
    }
    const std::string& chosen = tag ? tag->as_string() : node.untagged;
    for (const Shape::Variant& variant : node.variants)
      if (variant.tag == chosen) return check_record(variant.fields, value);
    if (node.others_pass) return {};
    std::vector<std::string_view> tags;
    for (const Shape::Variant& variant : node.variants) tags.push_back(variant.tag);
    Check bad = mismatch(fmt::format("one of {}", fmt::join(tags, ", ")), tag ? *tag : Json());
    prefix(*bad, node.tag);
    return bad;
  }

  // The alternative of the value's own JSON kind tells most about what is wrong.
  static Check check_either(const Node& node, const Json& value) {
    Check first = check(node.parts[0], value);
    if (!first) return {};
    Check second = check(node.parts[1], value);
    if (!second) return {};
    if (!second->path.empty()) return second;
    if (!first->path.empty()) return first;
    second->expected = first->expected + ", or " + second->expected;
    return second;
  }
};

namespace {

std::shared_ptr<Node> node_of(Kind kind) {
  auto node = std::make_shared<Node>();
  node->kind = kind;
  return node;
}

}  // namespace

Shape Shape::any() { return Shape(node_of(Kind::kAny)); }
Shape Shape::text() { return Shape(node_of(Kind::kText)); }
Shape Shape::boolean() { return Shape(node_of(Kind::kBool)); }
Shape Shape::signed_integer() { return Shape(node_of(Kind::kSigned)); }
Shape Shape::number() { return Shape(node_of(Kind::kNumber)); }
Shape Shape::unsigned_up_to(uint64_t most) {
  auto node = node_of(Kind::kUnsigned);
  node->most = most;
  return Shape(std::move(node));
}
Shape Shape::word(std::vector<std::string> words) {
  auto node = node_of(Kind::kWord);
  node->words = std::move(words);
  return Shape(std::move(node));
}
Shape Shape::list(Shape item) {
  auto node = node_of(Kind::kList);
  node->parts = {std::move(item)};
  return Shape(std::move(node));
}
Shape Shape::map(Shape value) {
  auto node = node_of(Kind::kMap);
  node->parts = {std::move(value)};
  return Shape(std::move(node));
}
Shape Shape::record(std::vector<Field> fields) {
  auto node = node_of(Kind::kRecord);
  node->fields = std::move(fields);
  return Shape(std::move(node));
}
Shape Shape::tagged(std::string tag, std::vector<Variant> variants, std::string untagged, bool others_pass) {
  auto node = node_of(Kind::kTagged);
  node->tag = std::move(tag);
  node->variants = std::move(variants);
  node->untagged = std::move(untagged);
  node->others_pass = others_pass;
  return Shape(std::move(node));
}
Shape Shape::either(Shape first, Shape second) {
  auto node = node_of(Kind::kEither);
  node->parts = {std::move(first), std::move(second)};
  return Shape(std::move(node));
}

Check ShapeChecker::check(const Shape& shape, const Json& value) { return check(*shape.node_, value); }

Refusal refuse_shape(const std::string& path, const std::string& expected, const std::string& found) {
  RequestError error;
  error.stage = RequestError::Stage::kParse;
  error.exact = false;
  error.param = path;
  error.message =
      fmt::format("invalid request body: {}{}expected {}, got {}", path, path.empty() ? "" : ": ", expected, found);
  return error;
}

Refusal Shape::check(const Json& value) const {
  const Check bad = ShapeChecker::check(*node_, value);
  return bad ? refuse_shape(bad->path, bad->expected, bad->found) : Refusal();
}

}  // namespace deepinfer
