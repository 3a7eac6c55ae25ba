// SPDX-License-Identifier: MIT
// Property: what parses, writes and parses again to the same value; the reader that finds faults finds none in it.
#include <string_view>

#include "base/json.h"
#include "base/json_fault.h"

namespace deepinfer {

int fuzz_json(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto value = parse_json(text);
  if (!value.ok()) return 0;
  CHECK(find_json_fault(text) == std::string_view::npos);  // two readers, one grammar
  const auto again = parse_json(to_json(value.value()));
  CHECK(again.ok());
  CHECK(again.value() == value.value());
  return 0;
}

}  // namespace deepinfer
