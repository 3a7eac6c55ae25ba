// SPDX-License-Identifier: MIT
// The routes of linear on tensor cores. Which one a matrix takes at a number of rows decides speed alone: where a
// matrix fits, the routes for few and for many rows give the same bits.
#pragma once

#include <algorithm>

#include "kernels/linear/linear.h"

namespace deepinfer {

// Whether warpgroups take it: whole chunks of columns, groups in whole tiles, rows that can be read 16 bytes at a time.
bool fits_warpgroups(const LinearParams& params);

// Segments of the columns that are summed apart, so that a matrix of few outputs has work for all multiprocessors. Rows
// of packed weights want two blocks of a multiprocessor, but each segment costs products of many rows some time.
inline int num_segments(int64_t out, int64_t in, bool is_packed) {
  constexpr int64_t kMost = 8;
  const int64_t enough = is_packed ? 132 : 72;  // tiles of 128 outputs
  return static_cast<int>(std::clamp<int64_t>(enough / ((out + 127) / 128), 1, std::min(kMost, in / 256)));
}

// Rows up to which a matrix has too little work for tiles of many rows: more where its columns are cut into more
// segments.
inline int64_t few_rows(int segments, int64_t most) { return segments > 3 ? 768 : most; }

inline constexpr int64_t kNarrowRows = 8, kStreamRows = 96;
bool fits_stream(const LinearParams& params);  // packed weights, few rows
void linear_stream(const ExecutionContext& context, const LinearParams& params);
bool fits_narrow(const LinearParams& params);  // few enough rows, and their columns fit a block's shared memory
void linear_narrow(const ExecutionContext& context, const LinearParams& params);  // up to kNarrowRows
void linear_wide(const ExecutionContext& context, const LinearParams& params);

}  // namespace deepinfer
