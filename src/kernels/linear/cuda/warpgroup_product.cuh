// SPDX-License-Identifier: MIT
// The warpgroup's matrix product of Hopper (PTX: wgmma.mma_async) with 64 outputs a warpgroup: A, the weights, in
// registers, B, 8 to 256 tokens, in shared memory (panel.cuh), sums in fp32. d[4 i + j] of thread (g, c) of warp w is
// output 16 w + g + 8 (j / 2) of token 8 i + 2 c + j % 2.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define DEEPINFER_HAS_WARPGROUPS 1
#else
#define DEEPINFER_HAS_WARPGROUPS 0
#endif

namespace deepinfer {

// Whether this build is for Hopper, as the host sees it: kernels of other builds are empty where warpgroups are missing.
inline constexpr int kBuiltFor[] = {__CUDA_ARCH_LIST__};
inline constexpr bool kHasWarpgroups = kBuiltFor[0] == 900;

__device__ inline void wait_for_warpgroup() { asm volatile("bar.sync %0, 128;" ::"r"(1 + threadIdx.x / 128) : "memory"); }

// What registers and shared memory held before is seen by the products behind.
__device__ inline void fence_products() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void commit_products() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most kPending groups are under way.
template <int kPending>
__device__ void wait_for_products() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Operands of the instruction: sums d[0], d[1], ... as registers %0, %1, ...
#define DEEPINFER_NUMBERS_4 "%0,%1,%2,%3"
#define DEEPINFER_NUMBERS_8 DEEPINFER_NUMBERS_4 \
  ",%4,%5,%6,%7"
#define DEEPINFER_NUMBERS_16 DEEPINFER_NUMBERS_8 \
  ",%8,%9,%10,%11,%12,%13,%14,%15"
#define DEEPINFER_NUMBERS_24 DEEPINFER_NUMBERS_16 \
  ",%16,%17,%18,%19,%20,%21,%22,%23"
#define DEEPINFER_NUMBERS_32 DEEPINFER_NUMBERS_16 \
  ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define DEEPINFER_NUMBERS_48 DEEPINFER_NUMBERS_32 \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define DEEPINFER_NUMBERS_64 DEEPINFER_NUMBERS_32 \
  ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55" \
  ",%56,%57,%58,%59,%60,%61,%62,%63"
#define DEEPINFER_NUMBERS_68 DEEPINFER_NUMBERS_64 \
  ",%64,%65,%66,%67"
#define DEEPINFER_NUMBERS_72 DEEPINFER_NUMBERS_68 \
  ",%68,%69,%70,%71"
#define DEEPINFER_NUMBERS_80 DEEPINFER_NUMBERS_72 \
  ",%72,%73,%74,%75,%76,%77,%78,%79"
#define DEEPINFER_NUMBERS_96 DEEPINFER_NUMBERS_80 \
  ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define DEEPINFER_NUMBERS_120 DEEPINFER_NUMBERS_96 \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111" \
  ",%112,%113,%114,%115,%116,%117,%118,%119"
#define DEEPINFER_NUMBERS_128 DEEPINFER_NUMBERS_120 \
  ",%120,%121,%122,%123,%124,%125,%126,%127"
#define DEEPINFER_SUMS_4(d, i) "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3])
#define DEEPINFER_SUMS_8(d, i) DEEPINFER_SUMS_4(d, i), DEEPINFER_SUMS_4(d, (i) + 4)
#define DEEPINFER_SUMS_16(d, i) DEEPINFER_SUMS_8(d, i), DEEPINFER_SUMS_8(d, (i) + 8)
#define DEEPINFER_SUMS_24(d, i) DEEPINFER_SUMS_16(d, i), DEEPINFER_SUMS_8(d, (i) + 16)
#define DEEPINFER_SUMS_32(d, i) DEEPINFER_SUMS_16(d, i), DEEPINFER_SUMS_16(d, (i) + 16)
#define DEEPINFER_SUMS_48(d, i) DEEPINFER_SUMS_32(d, i), DEEPINFER_SUMS_16(d, (i) + 32)
#define DEEPINFER_SUMS_64(d, i) DEEPINFER_SUMS_32(d, i), DEEPINFER_SUMS_32(d, (i) + 32)
#define DEEPINFER_SUMS_68(d, i) DEEPINFER_SUMS_64(d, i), DEEPINFER_SUMS_4(d, (i) + 64)
#define DEEPINFER_SUMS_72(d, i) DEEPINFER_SUMS_64(d, i), DEEPINFER_SUMS_8(d, (i) + 64)
#define DEEPINFER_SUMS_80(d, i) DEEPINFER_SUMS_64(d, i), DEEPINFER_SUMS_16(d, (i) + 64)
#define DEEPINFER_SUMS_96(d, i) DEEPINFER_SUMS_64(d, i), DEEPINFER_SUMS_32(d, (i) + 64)
#define DEEPINFER_SUMS_120(d, i) DEEPINFER_SUMS_96(d, i), DEEPINFER_SUMS_24(d, (i) + 96)
#define DEEPINFER_SUMS_128(d, i) DEEPINFER_SUMS_64(d, i), DEEPINFER_SUMS_64(d, (i) + 64)

// Adds the products of 64 outputs and `tokens` tokens over 16 columns.
#define DEEPINFER_PRODUCT(sums, tokens, weights, panel)                                                           \
  __device__ inline void wgmma_bf16(float (&d)[sums], const uint32_t (&a)[4], uint64_t b) {                       \
    asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned.m64n" #tokens                  \
                 "k16.f32.bf16.bf16 {" DEEPINFER_NUMBERS_##sums "}, {" weights "}, " panel ", p, 1, 1, 0;}"        \
                 : DEEPINFER_SUMS_##sums(d, 0)                                                                     \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));                                           \
  }
DEEPINFER_PRODUCT(4, 8, "%4,%5,%6,%7", "%8")
DEEPINFER_PRODUCT(8, 16, "%8,%9,%10,%11", "%12")
DEEPINFER_PRODUCT(16, 32, "%16,%17,%18,%19", "%20")
DEEPINFER_PRODUCT(24, 48, "%24,%25,%26,%27", "%28")
DEEPINFER_PRODUCT(32, 64, "%32,%33,%34,%35", "%36")
DEEPINFER_PRODUCT(48, 96, "%48,%49,%50,%51", "%52")
DEEPINFER_PRODUCT(64, 128, "%64,%65,%66,%67", "%68")
DEEPINFER_PRODUCT(68, 136, "%68,%69,%70,%71", "%72")
DEEPINFER_PRODUCT(72, 144, "%72,%73,%74,%75", "%76")
DEEPINFER_PRODUCT(80, 160, "%80,%81,%82,%83", "%84")
DEEPINFER_PRODUCT(96, 192, "%96,%97,%98,%99", "%100")
DEEPINFER_PRODUCT(120, 240, "%120,%121,%122,%123", "%124")
DEEPINFER_PRODUCT(128, 256, "%128,%129,%130,%131", "%132")
#undef DEEPINFER_PRODUCT

}  // namespace deepinfer
