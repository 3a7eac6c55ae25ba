// SPDX-License-Identifier: MIT
// Property: a configuration that is accepted declares a finite set of tensors, each with positive sizes.
#include <string_view>

#include "base/check.h"
#include "model/config.h"
#include "model/weight_table.h"

namespace deepinfer {

int fuzz_model_config(const uint8_t* data, size_t size) {
  const auto config = parse_model_config(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!config.ok()) return 0;
  CHECK(check_model_config(config.value()).ok());
  const ModelConfig& c = config.value();
  const int64_t num_rows = int64_t{c.num_layers} * c.num_experts + int64_t{c.draft.num_layers} * c.draft.num_experts;
  if (num_rows > 1 << 16) return 0;  // the table itself is plain arithmetic; keep runs short
  WeightViews views;
  for (const WeightRow& row : declare_weights(c, views)) CHECK(row.num_elements() > 0 && row.size_bytes() > 0);
  return 0;
}

}  // namespace deepinfer
