// SPDX-License-Identifier: MIT
#include "tokenizer/code_point_class.h"

namespace deepinfer {

#include "tokenizer/code_point_table.inc"

}  // namespace deepinfer
