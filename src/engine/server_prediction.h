// SPDX-License-Identifier: MIT
// What a model would do on a server's CPUs, from what this machine's kernels reach of its own ceilings. Arithmetic
// only:
//
//   bandwidth = nominal * kSustained                                        bytes a second a socket can read
//   peak      = cores * clock * bf16 operations a cycle                     operations a second
//   decode    = 1 / ( decode_bytes / (bandwidth * gemv_share)               weights, once a token
//                   + cache_bytes / bandwidth                               window, selected entries, index keys
//                   + index_operations / (2 * peak * index_share) )         int8 does twice the bf16 rate
//   prefill   = peak * gemm_share / ( 2 * prefill_parameters + attention )  long prompts, every expert busy
//
// Shares: GB/s of the packed FP4 mat-vec over plain reads, operations of the FP4 product of 512 rows over the bf16
// peak, operations of index scores over the int8 peak, each of one run here. Communication between sockets is not
// counted.
#pragma once

#include <cstdint>
#include <span>

#include "model/config.h"
#include "model/model_size.h"

namespace deepinfer {

// One socket, from its maker's data sheet.
struct ServerCpu {
  const char* name;
  int cores;
  double all_core_ghz;          // sustained with all cores busy
  double gigabytes_per_second;  // memory channels times their rate
  double bf16_flops_per_cycle;  // of one core
};
std::span<const ServerCpu> server_cpus();

inline constexpr double kSustained =
    0.85;  // of the nominal bandwidth: what published STREAM figures of these parts reach

struct KernelShares {
  double gemv = 0, gemm = 0, index = 0;  // of reads, of the bf16 peak, of the int8 peak
};

struct ServerPrediction {
  double decode_tokens_per_second = 0, prefill_tokens_per_second = 0;
  double decode_bytes = 0, cache_bytes = 0, index_operations = 0;  // of one decoded token
};
ServerPrediction predict(const ModelConfig& config, const ModelSize& size, const ServerCpu& cpu,
                         const KernelShares& shares, int64_t context_tokens);

}  // namespace deepinfer
