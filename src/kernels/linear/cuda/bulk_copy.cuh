// SPDX-License-Identifier: MIT
// Barriers in shared memory and the copies that complete on them (PTX: mbarrier, cp.async.bulk, cp.async).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace deepinfer {

__device__ inline uint32_t shared_address(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

__device__ inline void init_barrier(uint64_t& barrier, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&barrier)), "r"(arrivals) : "memory");
}
// Once all barriers are made: makes them known to copies and to the other blocks of the cluster.
__device__ inline void publish_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ inline void wait_for(uint64_t& barrier, uint32_t parity) {
  asm volatile(
      "{.reg .pred p;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra done;\n"
      "bra again;\n"
      "done: }" ::"r"(shared_address(&barrier)),
      "r"(parity)
      : "memory");
}
__device__ inline void arrive(uint64_t& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&barrier)) : "memory");
}
// On the same barrier of block `rank` of the cluster.
__device__ inline void arrive_in(uint64_t& barrier, uint32_t rank) {
  asm volatile(
      "{.reg .b32 there; mapa.shared::cluster.u32 there, %0, %1; mbarrier.arrive.shared::cluster.b64 _, [there];}" ::"r"(
          shared_address(&barrier)),
      "r"(rank)
      : "memory");
}
__device__ inline void arrive_and_expect(uint64_t& barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(&barrier)), "r"(bytes)
               : "memory");
}

// `bytes` in a row, a multiple of 16; both sides aligned to 16.
__device__ inline void copy_bulk(void* to, const void* from, uint32_t bytes, uint64_t& barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                   shared_address(to)),
               "l"(from), "r"(bytes), "r"(shared_address(&barrier))
               : "memory");
}
// To the same place of all blocks of the cluster named in `mask`, completing on the barrier of each.
__device__ inline void copy_bulk_to_cluster(void* to, const void* from, uint32_t bytes, uint64_t& barrier, uint16_t mask) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(
          shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(&barrier)), "h"(mask)
      : "memory");
}

// 16, 8 or 4 bytes by one thread, around the L1 cache where the size allows.
__device__ inline void copy_16(void* to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ inline void copy_8(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 8;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
__device__ inline void copy_4(void* to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(to)), "l"(from) : "memory");
}
// Arrives once all copies of this thread so far are done.
__device__ inline void arrive_after_copies(uint64_t& barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(&barrier)) : "memory");
}

__device__ inline uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
__device__ inline void wait_for_cluster() {
  asm volatile("barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// A value at the same place in block `rank` of the cluster.
__device__ inline float read_in_cluster(const float* p, uint32_t rank) {
  float value;
  asm volatile("{.reg .b32 there; mapa.shared::cluster.u32 there, %1, %2; ld.shared::cluster.f32 %0, [there];}"
               : "=f"(value)
               : "r"(shared_address(p)), "r"(rank)
               : "memory");
  return value;
}

// Shared memory of a block from the next 1024 bytes on, as swizzled panels want it.
template <typename Shared>
__device__ Shared& aligned_shared(uint8_t* raw) {
  return *reinterpret_cast<Shared*>(raw + (1024 - shared_address(raw) % 1024) % 1024);
}
template <typename Shared>
constexpr int64_t aligned_shared_bytes() {
  return static_cast<int64_t>(sizeof(Shared)) + 1024;
}

}  // namespace deepinfer
