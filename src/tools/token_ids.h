// SPDX-License-Identifier: MIT
// A JSON array of token ids, as --ids reads it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace deepinfer {

// Errors: invalid_argument naming the place: not an array, or an element that is no id in [0, vocab).
Result<std::vector<TokenId>> parse_token_ids(std::string_view json, int64_t vocab);

}  // namespace deepinfer
