// SPDX-License-Identifier: MIT
// What op benches share: the machine's rows, random packed weights, and ceilings measured in the same run. For benches only.
#pragma once

#include <string>
#include <vector>

#include "base/bench.h"
#include "base/philox.h"
#include "kernels/kernel_table.h"
#include "tensor/buffer.h"

namespace deepinfer::bench_ops {

// The context and resolved ops of a bench run. --set level=avx2 forces a level.
struct Machine {
  static Result<std::unique_ptr<Machine>> make(const BenchOptions& options);
  explicit Machine(int num_threads) : pool(num_threads), context{&pool, &scratch} {}
  ThreadPool pool;
  Scratch scratch;
  ExecutionContext context;
  KernelTable kernels;
  CpuLevel level = CpuLevel::kRef;
};

// Fused multiply-adds a second of this level's registers, one thread, counted as two operations each.
double measure_fma_flops(CpuLevel level);

// Random packed bytes (valid codes and moderate scales). Several copies so that weights exceed the caches.
Buffer<uint8_t> random_codes(int64_t size, uint64_t seed);
Buffer<uint8_t> random_scales(int64_t size, uint64_t seed);
Buffer<bf16> random_activations(int64_t size, uint64_t seed);

}  // namespace deepinfer::bench_ops
