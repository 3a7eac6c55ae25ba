// SPDX-License-Identifier: MIT
// Checks shared by the check() of ops; shapes themselves are compared by check_shape (tensor/view.h).
#pragma once

#include <string>
#include <string_view>

#include "base/status.h"
#include "tensor/view.h"

namespace deepinfer {

// The view has data (or no elements) and its last dimension is contiguous.
template <typename V>
Status check_rows(std::string_view what, const V& view) {
  if (view.num_elements() == 0) return {};
  if (!view.data) return invalid_argument(std::string(what) + ": has no data");
  if (view.stride[V::kRank - 1] != 1 && view.size[V::kRank - 1] > 1)
    return invalid_argument(std::string(what) + ": the last dimension has stride " +
                            std::to_string(view.stride[V::kRank - 1]) + ", expected 1");
  return {};
}

// As check_rows, with the last two dimensions contiguous.
template <typename V>
Status check_planes(std::string_view what, const V& view) {
  TRY(check_rows(what, view));
  const int64_t expected = view.size[V::kRank - 1], actual = view.stride[V::kRank - 2];
  if (view.num_elements() != 0 && view.size[V::kRank - 2] > 1 && actual != expected)
    return invalid_argument(std::string(what) + ": the row stride is " + std::to_string(actual) + ", expected " +
                            std::to_string(expected));
  return {};
}

inline Status check_size(std::string_view what, int64_t actual, int64_t expected) {
  if (actual == expected) return {};
  return invalid_argument(std::string(what) + " is " + std::to_string(actual) + ", expected " +
                          std::to_string(expected));
}

}  // namespace deepinfer
