// SPDX-License-Identifier: MIT
// The Engram token map of a tokenizer: the one place where tokenizer and engram meet.
#pragma once

#include "engram/token_map.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

TokenMap token_map_of(const Tokenizer& tokenizer);

}  // namespace deepinfer
