// SPDX-License-Identifier: MIT
#include "store/erasure.h"

#include <isa-l/erasure_code.h>

#include <bit>

#include "base/check.h"

namespace deepinfer {
ErasureCode::ErasureCode(int num_data_shards, int num_parity_shards) : k_(num_data_shards), m_(num_parity_shards) {
  CHECK(k_ >= 1 && m_ >= 0 && m_ <= 2 && k_ + m_ <= 16);
  matrix_.resize(static_cast<size_t>((k_ + m_) * k_));
  gf_gen_cauchy1_matrix(matrix_.data(), k_ + m_, k_);
  if (m_ == 0) return;
  parity_ = FieldRows(k_, std::span(matrix_).subspan(static_cast<size_t>(k_ * k_)));
  rebuilds_.resize(size_t{1} << (k_ + m_));
  for (uint32_t present = 0; present < rebuilds_.size(); ++present)
    if (std::popcount(present) == k_) prepare(present);
}

// Rows of the missing shards times the inverse of the rows of those present.
void ErasureCode::prepare(uint32_t present) {
  std::vector<uint8_t> rows, inverse(static_cast<size_t>(k_ * k_)), coefficients;
  for (int i = 0; i < k_ + m_; ++i)
    if (present >> i & 1) rows.insert(rows.end(), matrix_.begin() + i * k_, matrix_.begin() + (i + 1) * k_);
  CHECK(gf_invert_matrix(rows.data(), inverse.data(), k_) == 0);  // Cauchy: every square part inverts
  for (int i = 0; i < k_ + m_; ++i) {
    if (present >> i & 1) continue;
    for (int j = 0; j < k_; ++j) {
      uint8_t sum = 0;
      for (int l = 0; l < k_; ++l)
        sum ^= gf_mul(matrix_[static_cast<size_t>(i * k_ + l)], inverse[static_cast<size_t>(l * k_ + j)]);
      coefficients.push_back(sum);
    }
  }
  rebuilds_[present] = FieldRows(k_, coefficients);
}

void ErasureCode::encode(std::span<const uint8_t* const> data, std::span<uint8_t* const> parity, int64_t bytes) const {
  CHECK(static_cast<int>(data.size()) == k_ && static_cast<int>(parity.size()) == m_);
  if (m_ > 0) parity_.multiply(0, data, parity, bytes);
}

void ErasureCode::rebuild(uint32_t present, std::span<const uint8_t* const> sources, int wanted,
                          std::span<uint8_t* const> out, int64_t bytes) const {
  CHECK(std::popcount(present) == k_ && static_cast<int>(sources.size()) == k_ && !(present >> wanted & 1));
  const int before = wanted - std::popcount(present & ((1u << wanted) - 1));  // missing shards before this one
  rebuilds_[present].multiply(before, sources, out, bytes);
}

}  // namespace deepinfer
