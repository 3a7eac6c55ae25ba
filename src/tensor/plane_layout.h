// SPDX-License-Identifier: MIT
// A quantised matrix from one WeightLayout into the other (packed_matrix.h), 32 outputs at a time. Nothing but the
// places of bytes changes, and turning twice gives the first bytes again. Precondition of all: can_have_planes().
#pragma once

#include "tensor/packed_matrix.h"

namespace deepinfer {

// Outputs [32 * group, 32 * group + 32) of `from` in the other layout: 32 * in bytes. Scales are the same in both.
void turn_group(const Fp8Matrix& from, int64_t group, uint8_t* codes);
// The same: 16 * in bytes of codes, `in` bytes of scales. Either may be null: not wanted, and not read.
void turn_group(const Fp4Matrix& from, int64_t group, uint8_t* codes, uint8_t* scales);

}  // namespace deepinfer
