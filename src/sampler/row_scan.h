// SPDX-License-Identifier: MIT
// Passes over one row of logits. Sums run in a fixed order: sixteen fp32 lanes within 1,024 values, those in double, so
// a result depends on the row alone. Any thread.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"

namespace deepinfer {

// False if the row holds a NaN or an infinity.
bool is_finite(std::span<const float> row);

// The largest value, -infinity for none. No NaN may be in the row.
float max_of(std::span<const float> row);

// The lowest index that holds `value`. Precondition: one does.
TokenId first_of(std::span<const float> row, float value);

// Sum over the row of exp((row[i] - max) / temperature); -infinity counts 0.
double exp_sum(std::span<const float> row, float max, float temperature);

}  // namespace deepinfer
