// SPDX-License-Identifier: MIT
// Keys of a sliding window as a sublayer stores them (model.md 3.4), from the rows of wkv: normed as norm.h, the last
// channels turned as rope.h, packed in fp8 blocks as quantize.h. The bits are those of the three ops one after another.
#pragma once

#include "kernels/norm/norm.h"
#include "kernels/quantize/quantize.h"
#include "kernels/rope/rope.h"

namespace deepinfer {

// Where packed rows go, as PackRowsParams has it. Offsets are whole rows: multiples of four bytes.
struct PackedPlace {
  uint8_t* base = nullptr;
  int64_t stride_bytes = 0;
  View<const int64_t, dim::rows> offset_bytes;  // data may be null
};

struct PackKeysParams {
  View<bf16, dim::rows, dim::columns> x;  // working space, too: what it holds afterwards is not defined
  Bf16Vector norm_weight;                 // [columns]
  float norm_epsilon = 1e-20f;
  View<const float, dim::tokens, dim::rope_pairs> cos, sin;  // of row t
  PackedPlace to;
};
Status check(const PackKeysParams& params);
Cost estimate(const PackKeysParams& params);
KernelRows<PackKeysParams> pack_keys_rows();

// The three ops.
inline NormParams norm_of(const PackKeysParams& p) {
  return {.x = {p.x.data, p.x.size, p.x.stride},
          .weight = p.norm_weight,
          .epsilon = p.norm_epsilon,
          .out = {p.x.data, p.x.size, p.x.stride}};
}
inline RopeParams rope_of(const PackKeysParams& p) {
  return {.x = {p.x.data, {p.x.size[0], 1, p.x.size[1]}, {p.x.stride[0], p.x.size[1], 1}}, .cos = p.cos, .sin = p.sin};
}
inline PackRowsParams pack_of(const PackKeysParams& p) {
  return {.format = RowFormat::kFp8Block32,
          .x = p.x,
          .base = p.to.base,
          .stride_bytes = p.to.stride_bytes,
          .offset_bytes = p.to.offset_bytes};
}

}  // namespace deepinfer
