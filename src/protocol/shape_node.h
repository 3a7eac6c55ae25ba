// SPDX-License-Identifier: MIT
// What a shape is made of; for shape*.cc only.
#pragma once

#include "protocol/shape.h"

namespace deepinfer {

enum class ShapeKind { kAny, kText, kBool, kUnsigned, kSigned, kNumber, kWord, kList, kMap, kRecord, kTagged, kEither };

struct Shape::Node {
  ShapeKind kind = ShapeKind::kAny;
  uint64_t most = 0;
  std::vector<std::string> words;
  std::vector<Shape> parts;  // list item, map value, the two of kEither
  std::vector<Field> fields;
  std::string tag, untagged;
  std::vector<Variant> variants;
  bool others_pass = false;
};

}  // namespace deepinfer
