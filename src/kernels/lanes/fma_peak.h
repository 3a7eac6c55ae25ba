// SPDX-License-Identifier: MIT
// The ceilings of arithmetic at one instruction level: independent multiply-adds held in registers. For benches.
#pragma once

#include <cstdint>

namespace deepinfer {

// Does `rounds` times 16 x 16-lane multiply-adds and returns a number that depends on them all.
float fma_rounds_avx2(int64_t rounds);
float fma_rounds_avx512(int64_t rounds);
inline constexpr double kFlopsPerFmaRound = 2.0 * 16 * 16;
// The same with sixteen dot products of bf16 pairs, and of four bytes.
float dot_rounds_bf16(int64_t rounds);
float dot_rounds_vnni(int64_t rounds);
inline constexpr double kFlopsPerBf16Round = 2.0 * 16 * 32, kFlopsPerInt8Round = 2.0 * 16 * 64;

}  // namespace deepinfer
