// SPDX-License-Identifier: MIT
// Systematic Reed-Solomon over GF(2^8), k data and m parity shards, a Cauchy block under the identity (ISA-L), so any k
// of the k + m shards give all of them back (serving.md 9.7). k = 1, m = 0 is plain storage. Thread: immutable.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "store/field_rows.h"

namespace deepinfer {

class ErasureCode {
 public:
  // Precondition: 1 <= k, 0 <= m <= 2, k + m <= 16.
  ErasureCode(int num_data_shards, int num_parity_shards);

  int num_data_shards() const { return k_; }
  int num_parity_shards() const { return m_; }
  int num_shards() const { return k_ + m_; }

  // data: k pointers, parity: m pointers, each to `bytes` bytes.
  void encode(std::span<const uint8_t* const> data, std::span<uint8_t* const> parity, int64_t bytes) const;

  // Recomputes shard `wanted` (data or parity) from exactly k others, and with two outputs the missing shard after it
  // in the same pass. `present` has bit i set for shard i; `sources` are their bytes in ascending shard order.
  // Precondition: k bits are set, and not that of `wanted`.
  void rebuild(uint32_t present, std::span<const uint8_t* const> sources, int wanted, std::span<uint8_t* const> out,
               int64_t bytes) const;

 private:
  void prepare(uint32_t present);
  int k_, m_;
  std::vector<uint8_t> matrix_;      // [k + m, k]
  FieldRows parity_;                 // its last m rows
  std::vector<FieldRows> rebuilds_;  // by `present`: a row for each missing shard, ascending
};

}  // namespace deepinfer
