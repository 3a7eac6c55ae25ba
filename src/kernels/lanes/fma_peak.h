// SPDX-License-Identifier: MIT
// The ceiling of fp32 arithmetic at one instruction level: independent fused multiply-adds held in registers. For
// benches.
#pragma once

#include <cstdint>

namespace deepinfer {

// Does `rounds` times 16 x 16-lane multiply-adds and returns a number that depends on them all.
float fma_rounds_avx2(int64_t rounds);
float fma_rounds_avx512(int64_t rounds);
inline constexpr double kFlopsPerFmaRound = 2.0 * 16 * 16;

}  // namespace deepinfer
