// SPDX-License-Identifier: MIT
// What a request body must look like, as data: the fields of every object, their kinds, which are required. A body is
// checked whole before anything of it is used. Unknown fields are ignored; an optional field may be null.
// Source: chat.md 3.1-3.4. Immutable; any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "protocol/request_error.h"

namespace deepinfer {

class Shape {
 public:
  struct Field;
  struct Variant;

  static Shape any();
  static Shape text();
  static Shape boolean();
  static Shape unsigned_up_to(uint64_t most);  // an integer without fraction, 0..most
  static Shape signed_integer();               // 64 bits
  static Shape number();
  static Shape word(std::vector<std::string> words);  // one of these strings
  static Shape list(Shape item);
  static Shape map(Shape value);  // an object with any keys
  static Shape record(std::vector<Field> fields);
  // An object whose member `tag` chooses what else it holds. `untagged`: the variant that an object without the tag
  // takes
  // ("" = refused). `others_pass`: objects with an unknown tag are let through unchecked.
  static Shape tagged(std::string tag, std::vector<Variant> variants, std::string untagged = "",
                      bool others_pass = false);
  static Shape either(Shape first, Shape second);  // chosen by the JSON kind: one of them must accept it

  // The first place where `value` has another shape: param is its path, the message names path, expectation and
  // finding.
  Refusal check(const Json& value) const;

  // The same as JSON Schema (2020-12), for documents. Whole numbers with a fraction (1.0) are integers there; the check
  // refuses them.
  Json json_schema() const;

  struct Node;

 private:
  explicit Shape(std::shared_ptr<const Node> node) : node_(std::move(node)) {}
  std::shared_ptr<const Node> node_;
  friend struct ShapeChecker;
};

// The refusal of a value of another shape.
Refusal refuse_shape(const std::string& path, const std::string& expected, const std::string& found);

struct Shape::Field {
  std::string name;
  Shape shape;
  bool required = false;
  bool nullable = true;  // an optional field may be null
};

struct Shape::Variant {
  std::string tag;
  std::vector<Field> fields;
};

}  // namespace deepinfer
