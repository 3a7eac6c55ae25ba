// SPDX-License-Identifier: MIT
#include <cuda_runtime.h>

#include "model/engram_hash.h"

namespace deepinfer {
namespace {

constexpr int kThreads = 128;

// A thread makes one row number: column c hashes the c / heads + 2 newest tokens.
__global__ void hash_kernel(EngramHashRun p) {
  const int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x, table = blockIdx.y;
  if (at >= p.num_rows * p.rows_per_token) return;
  const int64_t row = at / p.rows_per_token, column = at % p.rows_per_token;
  const int num_tokens = static_cast<int>(column / p.num_heads) + 2;
  int64_t hash = 0;
  bool is_blocked = false;
  for (int shift = 0; shift < num_tokens; ++shift) {
    const TokenId token = p.tokens[row * p.look_back + shift];
    is_blocked = is_blocked || token < 0;
    const int64_t value = is_blocked || token >= p.num_ids ? p.pad_class : p.classes[token];
    hash ^= value * p.multipliers[table * p.look_back + shift];
  }
  const int64_t place = table * p.rows_per_token + column;
  p.out[table * p.table_stride + at] = hash % p.primes[place] + p.offsets[place];
}

void hash(void* stream, const EngramHashRun& run) {
  const unsigned blocks = static_cast<unsigned>((run.num_rows * run.rows_per_token + kThreads - 1) / kThreads);
  hash_kernel<<<dim3(blocks, static_cast<unsigned>(run.num_tables)), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      run);
}

}  // namespace

extern const EngramHashLaunch kEngramHashCuda = hash;

}  // namespace deepinfer
