// SPDX-License-Identifier: MIT
// Picks rows of bytes: out(r) = rows(source(r)). `out` may be `rows` where sources ascend and source(r) >= r: rows that
// go on move up. Otherwise the two may not overlap.
#pragma once

#include "kernels/op.h"

namespace deepinfer {

struct GatherRowsParams {
  View<const uint8_t, dim::rows, dim::columns> rows;
  View<const int32_t, dim::entries> source;
  View<uint8_t, dim::rows, dim::columns> out;
};
Status check(const GatherRowsParams& params);
Status check_values(const GatherRowsParams& params);
Cost estimate(const GatherRowsParams& params);
KernelRows<GatherRowsParams> gather_rows_rows();

// The same over rows of any element type.
template <typename T>
View<const uint8_t, dim::rows, dim::columns> as_bytes(const T* data, int64_t rows, int64_t columns, int64_t stride) {
  const int64_t size = static_cast<int64_t>(sizeof(T));
  return {reinterpret_cast<const uint8_t*>(data), {rows, columns * size}, {stride * size, 1}};
}
template <typename T>
View<uint8_t, dim::rows, dim::columns> as_writable_bytes(T* data, int64_t rows, int64_t columns, int64_t stride) {
  const int64_t size = static_cast<int64_t>(sizeof(T));
  return {reinterpret_cast<uint8_t*>(data), {rows, columns * size}, {stride * size, 1}};
}

}  // namespace deepinfer
