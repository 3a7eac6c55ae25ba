// SPDX-License-Identifier: MIT
// Copies rows of bytes to given offsets: fresh SWA rows into rings after attention, staged rows into blocks.
#pragma once

#include "kernels/op.h"

namespace deepinfer {

struct ScatterRowsParams {
  View<const uint8_t, dim::rows, dim::kv_bytes> rows;
  uint8_t* base = nullptr;
  View<const int64_t, dim::rows> offset_bytes;  // kSkipRow leaves a row out; offsets are distinct
};
Status check(const ScatterRowsParams& params);
Cost estimate(const ScatterRowsParams& params);
KernelRows<ScatterRowsParams> scatter_rows_rows();

}  // namespace deepinfer
