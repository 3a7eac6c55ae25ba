// SPDX-License-Identifier: MIT
// Rounding rows of bf16 to the small formats (model.md 4.1-4.5), and the packed cache rows made of them.
//
//   format         scale per          scale                      codes   row bytes of n columns   used for
//   kFp8Block32    32 columns         e8m0, 2^ceil(log2(m/448))  e4m3    n + n/32      (528)      activations, SWA KV
//   kFp4Group16    16 columns         e4m3, RNE(m/6)             e2m1    n/2 + n/16    (288)      compressed KV
//   kFp4Group32    32 columns         e8m0, 2^ceil(log2(m/6))    e2m1    n/2 + n/32    (68)       index keys and
//   queries kBf16          -                  -                          bf16    2n                       rows kept as
//   they are (tests, comparisons)
//
// m = largest magnitude of the group, at least 1e-4, 6*2^-9, 6*2^-126. A packed row is all codes, then all scales; two
// e2m1 codes per byte, the even column low. Codes are round-to-nearest-even of x / scale, saturated. Unpacked values
// are bf16 (code * scale, one rounding, exact except beyond the range of bf16). n is a multiple of the group; x is
// finite. Ops are exact: every row of the tables gives the same bytes.
#pragma once

#include "kernels/op.h"
#include "tensor/bfloat16.h"

namespace deepinfer {

enum class RowFormat { kFp8Block32, kFp4Group16, kFp4Group32, kBf16 };
const char* to_string(RowFormat format);
int64_t row_group(RowFormat format);                       // columns per scale
int64_t row_bytes(RowFormat format, int64_t num_columns);  // of a packed row

// bf16 rows -> packed rows. Row r goes to base + offset_bytes(r), or to base + r * stride_bytes where no offsets are
// given; kSkipRow leaves a row out. So one op fills dense rows, rings and paged blocks.
struct PackRowsParams {
  RowFormat format = RowFormat::kFp8Block32;
  View<const bf16, dim::rows, dim::columns> x;
  uint8_t* base = nullptr;
  int64_t stride_bytes = 0;
  View<const int64_t, dim::rows> offset_bytes;  // data may be null
};
Status check(const PackRowsParams& params);
Cost estimate(const PackRowsParams& params);
KernelRows<PackRowsParams> pack_rows_rows();

// Packed rows -> bf16 rows.
struct UnpackRowsParams {
  RowFormat format = RowFormat::kFp8Block32;
  View<const uint8_t, dim::rows, dim::kv_bytes> packed;
  View<bf16, dim::rows, dim::columns> out;
};
Status check(const UnpackRowsParams& params);
Cost estimate(const UnpackRowsParams& params);
KernelRows<UnpackRowsParams> unpack_rows_rows();

// Packing and unpacking in one: what the reference calls quantise-dequantise. `out` may be `x`.
struct RoundRowsParams {
  RowFormat format = RowFormat::kFp8Block32;
  View<const bf16, dim::rows, dim::columns> x;
  View<bf16, dim::rows, dim::columns> out;
};
Status check(const RoundRowsParams& params);
Cost estimate(const RoundRowsParams& params);
KernelRows<RoundRowsParams> round_rows_rows();

}  // namespace deepinfer
