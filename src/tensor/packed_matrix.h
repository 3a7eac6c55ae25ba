// SPDX-License-Identifier: MIT
// Weights in the formats of the checkpoint, as borrowed views: nothing is unpacked, nothing is owned. Every matrix is
// [out, in], row-major and contiguous; `out` is the number of results of the linear, `in` its reduction length.
// (A converted checkpoint may hold quantised matrices in another order: WeightLayout.) Pointers are aligned to their
// element type and to nothing more. The bytes are a file map: the first touch reads the disk. A default-made view (data
// == nullptr) means "this checkpoint has no such tensor".
#pragma once

#include <cstdint>

#include "base/check.h"
#include "tensor/bfloat16.h"

namespace deepinfer {

inline constexpr int64_t kScaleBlock = 32;  // columns (and, for Fp8Matrix, rows) that share one e8m0 scale

constexpr int64_t num_scale_blocks(int64_t n) { return (n + kScaleBlock - 1) / kScaleBlock; }

// In which order the bytes of a quantised matrix stand. kPlanes is what `deepinfer convert` writes for the CPU: the
// same bytes, as many, turned so that one register can be loaded with column k of sixteen or 32 outputs. Plane l of a
// matrix are its columns k with k mod 16 = l (lane l of kernels/lanes/lanes.h); column k is step k/16 of its plane.
// Groups of 32 outputs stand one after the other, each as
//   Fp8Matrix  codes  [plane / 4][step][plane % 4][output], a byte each; scales as in kRows
//   Fp4Matrix  codes  [plane / 8][step][output][plane % 8], four bits each, the even plane in the low nibble
//              scales [column / 32][output]
// so that row(o) and row_scales(o) are the group's beginning for an o that is a multiple of 32. Only matrices whose out
// and in are multiples of 32 have it.
enum class WeightLayout : uint8_t { kRows, kPlanes };

constexpr bool can_have_planes(int64_t out, int64_t in) { return out % kScaleBlock == 0 && in % kScaleBlock == 0; }

// e4m3 codes [out, in]; e8m0 scales [ceil(out/32), ceil(in/32)], one per 32x32 tile.
struct Fp8Matrix {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  int64_t out = 0, in = 0;
  WeightLayout layout = WeightLayout::kRows;

  constexpr bool empty() const { return codes == nullptr; }
  constexpr int64_t scale_columns() const { return num_scale_blocks(in); }
  constexpr const uint8_t* row(int64_t o) const {
    DCHECK(o >= 0 && o < out && (layout == WeightLayout::kRows || o % kScaleBlock == 0));
    return codes + o * in;
  }
  constexpr const uint8_t* row_scales(int64_t o) const { return scales + o / kScaleBlock * scale_columns(); }
  // Where the code of (o, k) stands.
  constexpr int64_t code_index(int64_t o, int64_t k) const {
    if (layout == WeightLayout::kRows) return o * in + k;
    const int64_t plane = k % 16, step = k / 16;
    return o / 32 * 32 * in + ((plane / 4 * (in / 16) + step) * 4 + plane % 4) * 32 + o % 32;
  }
  constexpr uint8_t code(int64_t o, int64_t k) const { return codes[code_index(o, k)]; }
  constexpr uint8_t scale(int64_t o, int64_t k) const { return row_scales(o)[k / kScaleBlock]; }
  // Rows [begin, end) as a matrix of their own. Precondition: begin is a multiple of 32.
  Fp8Matrix rows(int64_t begin, int64_t end) const {
    DCHECK(begin % kScaleBlock == 0 && begin <= end && end <= out);
    return {codes + begin * in, row_scales(begin), end - begin, in, layout};
  }
};

// e2m1 codes, two per byte with the even column in the low nibble: [out, in/2] bytes; e8m0 scales [out, in/32], one per
// row and 32 columns. `in` is a multiple of 32.
struct Fp4Matrix {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  int64_t out = 0, in = 0;
  WeightLayout layout = WeightLayout::kRows;

  constexpr bool empty() const { return codes == nullptr; }
  constexpr int64_t row_bytes() const { return in / 2; }
  constexpr int64_t scale_columns() const { return in / kScaleBlock; }
  constexpr const uint8_t* row(int64_t o) const {
    DCHECK(o >= 0 && o < out && (layout == WeightLayout::kRows || o % kScaleBlock == 0));
    return codes + o * row_bytes();
  }
  constexpr const uint8_t* row_scales(int64_t o) const { return scales + o * scale_columns(); }
  // Where the code of (o, k) stands, counted in nibbles, and its scale.
  constexpr int64_t code_index(int64_t o, int64_t k) const {
    if (layout == WeightLayout::kRows) return o * in + k;
    const int64_t plane = k % 16, step = k / 16;
    return o / 32 * 32 * in + ((plane / 8 * (in / 16) + step) * 32 + o % 32) * 8 + plane % 8;
  }
  constexpr int64_t scale_index(int64_t o, int64_t k) const {
    if (layout == WeightLayout::kRows) return o * scale_columns() + k / kScaleBlock;
    return o / 32 * 32 * scale_columns() + k / kScaleBlock * 32 + o % 32;
  }
  constexpr uint8_t code(int64_t o, int64_t k) const {
    const int64_t nibble = code_index(o, k);
    return codes[nibble / 2] >> (nibble % 2 * 4) & 0xF;
  }
  constexpr uint8_t scale(int64_t o, int64_t k) const { return scales[scale_index(o, k)]; }
};

// A table of e4m3 rows with one e8m0 scale per row and 32 columns (the Engram tables): codes [num_rows, columns],
// scales [num_rows, columns/32]. Row numbers go beyond 2^28.
struct Fp8Rows {
  const uint8_t* codes = nullptr;
  const uint8_t* scales = nullptr;
  int64_t num_rows = 0, columns = 0;

  constexpr bool empty() const { return codes == nullptr; }
  constexpr int64_t scale_columns() const { return columns / kScaleBlock; }
  constexpr const uint8_t* row(int64_t r) const {
    DCHECK(r >= 0 && r < num_rows);
    return codes + r * columns;
  }
  constexpr const uint8_t* row_scales(int64_t r) const { return scales + r * scale_columns(); }
};

struct Bf16Matrix {
  const bf16* data = nullptr;
  int64_t out = 0, in = 0;

  constexpr bool empty() const { return data == nullptr; }
  constexpr const bf16* row(int64_t o) const {
    DCHECK(o >= 0 && o < out);
    return data + o * in;
  }
};

struct F32Matrix {
  const float* data = nullptr;
  int64_t out = 0, in = 0;

  constexpr bool empty() const { return data == nullptr; }
  constexpr const float* row(int64_t o) const {
    DCHECK(o >= 0 && o < out);
    return data + o * in;
  }
};

struct Bf16Vector {
  const bf16* data = nullptr;
  int64_t size = 0;

  constexpr bool empty() const { return data == nullptr; }
  constexpr float operator[](int64_t i) const {
    DCHECK(i >= 0 && i < size);
    return to_float(data[i]);
  }
};

struct F32Vector {
  const float* data = nullptr;
  int64_t size = 0;

  constexpr bool empty() const { return data == nullptr; }
  constexpr float operator[](int64_t i) const {
    DCHECK(i >= 0 && i < size);
    return data[i];
  }
};

}  // namespace deepinfer
