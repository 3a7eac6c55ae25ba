// SPDX-License-Identifier: MIT
// Products with a small matrix over GF(2^8), polynomial 0x11d: what coding and rebuilding shards come down to. With
// GFNI a coefficient is one instruction on 64 bytes (GF2P8AFFINEQB: multiplying by a constant is linear in the bits, so
// its 8 x 8 bit matrix does it in any field); without, ISA-L's tables. Thread: immutable.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace deepinfer {

class FieldRows {
 public:
  static constexpr int kColumnsMax = 16;
  FieldRows() = default;
  // Row-major; at most kColumnsMax columns.
  FieldRows(int num_columns, std::span<const uint8_t> coefficients);

  // out[r] = sum over j of coefficient[first_row + r, j] * in[j], for 1 or 2 rows of `bytes` bytes each.
  void multiply(int first_row, std::span<const uint8_t* const> in, std::span<uint8_t* const> out, int64_t bytes) const;
  // The same by ISA-L on any machine.
  void multiply_by_tables(int first_row, std::span<const uint8_t* const> in, std::span<uint8_t* const> out,
                          int64_t bytes) const;

 private:
  int num_columns_ = 0;
  std::vector<uint8_t> tables_;    // [rows, columns, 32]
  std::vector<uint64_t> affines_;  // [rows, columns]
};

}  // namespace deepinfer
