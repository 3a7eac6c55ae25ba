// SPDX-License-Identifier: MIT
#include "store/field_rows.h"

#include <immintrin.h>
#include <isa-l/erasure_code.h>

#include <algorithm>

#include "base/check.h"

namespace deepinfer {
namespace {

constexpr int64_t kTableBytes = 32;                // of one coefficient
constexpr int64_t kPieceBytes = int64_t{1} << 30;  // ISA-L counts in int

// Bit j of byte 7 - i: whether bit i of the product has bit j of the factor in it (Intel SDM, GF2P8AFFINEQB).
uint64_t affine_of(uint8_t coefficient) {
  uint64_t matrix = 0;
  for (int j = 0; j < 8; ++j) {
    const uint8_t column = gf_mul(coefficient, static_cast<uint8_t>(1 << j));
    for (int i = 0; i < 8; ++i) matrix |= uint64_t{static_cast<uint8_t>(column >> i & 1)} << ((7 - i) * 8 + j);
  }
  return matrix;
}

bool has_gfni() {
  static const bool has = __builtin_cpu_supports("gfni") && __builtin_cpu_supports("avx512bw");
  return has;
}

// 64 bytes of every row at `at`; the mask leaves out what lies behind the end.
template <int kRows>
__attribute__((target("gfni,avx512f,avx512bw"), always_inline)) inline void step(const uint64_t* affines,
                                                                                 int num_columns,
                                                                                 const uint8_t* const* in,
                                                                                 uint8_t* const* out, int64_t at,
                                                                                 __mmask64 mask) {
  __m512i sums[kRows] = {};
  for (int j = 0; j < num_columns; ++j) {
    const __m512i x = _mm512_maskz_loadu_epi8(mask, in[j] + at);
    for (int r = 0; r < kRows; ++r) {
      const __m512i matrix = _mm512_set1_epi64(static_cast<int64_t>(affines[r * num_columns + j]));
      sums[r] = _mm512_xor_si512(sums[r], _mm512_gf2p8affine_epi64_epi8(x, matrix, 0));
    }
  }
  for (int r = 0; r < kRows; ++r) _mm512_mask_storeu_epi8(out[r] + at, mask, sums[r]);
}

template <int kRows>
__attribute__((target("gfni,avx512f,avx512bw"))) void multiply_by_gfni(const uint64_t* affines, int num_columns,
                                                                       const uint8_t* const* in, uint8_t* const* out,
                                                                       int64_t bytes) {
  int64_t at = 0;
  for (; at + 64 <= bytes; at += 64) step<kRows>(affines, num_columns, in, out, at, ~__mmask64{0});
  if (at < bytes) step<kRows>(affines, num_columns, in, out, at, (__mmask64{1} << (bytes - at)) - 1);
}

}  // namespace

FieldRows::FieldRows(int num_columns, std::span<const uint8_t> coefficients) : num_columns_(num_columns) {
  CHECK(num_columns >= 1 && num_columns <= kColumnsMax);
  const int num_rows = static_cast<int>(coefficients.size()) / num_columns;
  tables_.resize(coefficients.size() * kTableBytes);
  ec_init_tables(num_columns, num_rows, const_cast<uint8_t*>(coefficients.data()), tables_.data());
  for (const uint8_t coefficient : coefficients) affines_.push_back(affine_of(coefficient));
}

void FieldRows::multiply(int first_row, std::span<const uint8_t* const> in, std::span<uint8_t* const> out,
                         int64_t bytes) const {
  CHECK(static_cast<int>(in.size()) == num_columns_ && (out.size() == 1 || out.size() == 2));
  CHECK((first_row + out.size()) * in.size() <= affines_.size());
  if (!has_gfni()) return multiply_by_tables(first_row, in, out, bytes);
  const uint64_t* const affines = affines_.data() + first_row * num_columns_;
  if (out.size() == 1) multiply_by_gfni<1>(affines, num_columns_, in.data(), out.data(), bytes);
  else multiply_by_gfni<2>(affines, num_columns_, in.data(), out.data(), bytes);
}

void FieldRows::multiply_by_tables(int first_row, std::span<const uint8_t* const> in, std::span<uint8_t* const> out,
                                   int64_t bytes) const {
  std::vector<uint8_t*> from(in.size()), to(out.size());
  for (int64_t begin = 0; begin < bytes; begin += kPieceBytes) {
    const int64_t n = std::min(kPieceBytes, bytes - begin);
    for (size_t j = 0; j < in.size(); ++j) from[j] = const_cast<uint8_t*>(in[j]) + begin;
    for (size_t r = 0; r < out.size(); ++r) to[r] = out[r] + begin;
    ec_encode_data(static_cast<int>(n), num_columns_, static_cast<int>(out.size()),
                   const_cast<uint8_t*>(tables_.data()) + first_row * num_columns_ * kTableBytes, from.data(),
                   to.data());
  }
}

}  // namespace deepinfer
