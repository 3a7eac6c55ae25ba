// SPDX-License-Identifier: MIT
// The constants of the Engram hash, derived from the configuration alone (model.md 3.10, Appendix A and B): for each
// layer with a table its primes, row offsets and multipliers. Pure arithmetic; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "engram/engram_config.h"

namespace deepinfer {

struct HashLayer {
  int layer = 0;                     // backbone layer
  std::vector<int64_t> primes;       // [rows_per_token]: all heads of n = 2, then of 3, ...
  std::vector<int64_t> offsets;      // [rows_per_token]: running sums of the primes
  std::vector<int64_t> multipliers;  // [ngram_max], odd

  int64_t num_rows() const { return offsets.back() + primes.back(); }
};

struct HashPlan {
  int ngram_max = 0;
  int num_heads = 0;
  std::vector<HashLayer> layers;  // in the order of the configuration

  int rows_per_token() const { return (ngram_max - 1) * num_heads; }
};

// Errors: invalid_argument when the configuration is out of bounds (a table could need more primes than are
// reasonable).
Result<HashPlan> make_hash_plan(const EngramConfig& config);

// `size` draws of NumPy's default_rng(seed).integers(0, bound), bound > 2^32 (Appendix B). Exposed for its test.
std::vector<int64_t> numpy_integers(uint64_t seed, uint64_t bound, int size);

}  // namespace deepinfer
