// SPDX-License-Identifier: MIT
// Systematic Reed-Solomon over GF(2^8), k data and m parity shards, a Cauchy block under the identity (ISA-L), so any k
// of the k + m shards give all of them back (serving.md 9.7). k = 1, m = 0 is plain storage. Thread: immutable.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

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

  // Recomputes shard `wanted` (data or parity) from exactly k others. `present` has bit i set for shard i; `sources`
  // are their bytes in ascending shard order. Precondition: k bits are set, and not that of `wanted`.
  void rebuild(uint32_t present, std::span<const uint8_t* const> sources, int wanted, uint8_t* out,
               int64_t bytes) const;

 private:
  void prepare(uint32_t present);
  int k_, m_;
  std::vector<uint8_t> matrix_;                 // [k + m, k]
  std::vector<uint8_t> encode_tables_;          // [m, k, 32]
  std::vector<std::vector<uint8_t>> rebuilds_;  // by `present`: [number of missing shards, k, 32], ascending
};

}  // namespace deepinfer
