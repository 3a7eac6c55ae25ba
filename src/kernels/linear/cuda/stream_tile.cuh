// SPDX-License-Identifier: MIT
// Products of packed weights for few tokens, on warpgroups (wgmma). Every thread copies the codes that it unpacks itself,
// units of 128 bytes of a row ahead of their use, so that a warp waits for nothing but its own copies; panels of
// activations, which warps bring in turn, are all that the warps of a block have in common. While one waits or multiplies,
// others unpack. What binds is the number of instructions: addresses are kept, not computed.
//
// The sums of an output are those of wide_tile.cuh: ascending columns, sixteen at a time, in one fp32 accumulator a
// segment; segments, which depend on the matrix alone, are the blocks of a cluster and are added in order.
#pragma once

#include <cstddef>

#include "kernels/lanes/cuda/overlapped_launch.cuh"
#include "kernels/linear/cuda/bulk_copy.cuh"
#include "kernels/linear/cuda/panel.cuh"
#include "kernels/linear/cuda/tensor_tile.cuh"
#include "kernels/linear/cuda/unpack.cuh"
#include "kernels/linear/cuda/warpgroup_product.cuh"

namespace deepinfer {

template <WeightKind kKindOf, int kTokensOf, int kWarpgroupsOf, int kXSlotsOf, int kWSlotsOf>
struct Stream {
  static constexpr WeightKind kKind = kKindOf;
  static constexpr bool kIsFp4 = kKind == WeightKind::kFp4;
  static constexpr int kTokens = kTokensOf, kXSlots = kXSlotsOf, kWSlots = kWSlotsOf;
  static constexpr int kWarps = 4 * kWarpgroupsOf, kThreads = 32 * kWarps;
  static constexpr int kOut = 16 * kWarps, kBlocks = kWarpgroupsOf > 2 ? 1 : 2;  // of a multiprocessor
  static constexpr int kUnit = kIsFp4 ? 256 : 128;                               // columns in 128 bytes of a row
  static constexpr int kWarpCodes = 2048, kWarpScales = kIsFp4 ? 128 : 16;       // bytes of a warp's unit
  struct Shared {
    alignas(1024) uint8_t x[kXSlots][2][kTokens * 128];  // 128 columns
    alignas(16) uint8_t codes[kWSlots][kWarps][kWarpCodes];
    alignas(16) uint8_t scales[kWSlots][kWarps][kWarpScales];
    uint64_t full[kXSlots], empty[kXSlots];
  };
};

// Where a thread's codes are (rows g and g + 8 of its warp's sixteen), and the scales that it copies.
struct StreamRows {
  const uint8_t *low, *high, *scales;
};
// A warp's rows: `first` and seven more of m, first_high and seven more of m_high (the same matrix, or gate and up). Rows
// beyond the last are read as it.
template <WeightKind kKind>
__device__ StreamRows stream_rows(const DeviceMatrix& m, int64_t first, const DeviceMatrix& m_high, int64_t first_high) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, c = lane % 4;
  const int64_t row_bytes = Packing<kKind>::bytes(m.in), last = m.out - 1;
  const int i = kKind == WeightKind::kFp4 ? lane % 16 : lane % 2 * 8;
  const int64_t r = min((i < 8 ? first : first_high) + i % 8, last);
  return {m.codes + min(first + g, last) * row_bytes + 16 * c, m_high.codes + min(first_high + g, last) * row_bytes + 16 * c,
          (i < 8 ? m : m_high).scales + (kKind == WeightKind::kFp4 ? r : r / 32) * (m.in / 32)};
}

// A tile's activations.
struct StreamPanels {
  const uint8_t* x;      // its first group of eight tokens in panel 0
  int64_t panel_stride;  // bytes
  int num_groups, first, end;  // chunks of 128 columns: two panels
};

template <typename S>
__device__ void init_stream(typename S::Shared& s) {
  if (threadIdx.x != 0) return;
  for (int i = 0; i < S::kXSlots; ++i) init_barrier(s.full[i], 1), init_barrier(s.empty[i], S::kWarps);
  publish_barriers();
}

// One warp: the n-th chunk's panels, once the slot's chunk before has been multiplied by all warps.
template <typename S>
__device__ void bring_panels(typename S::Shared& s, const StreamPanels& p, int n) {
  if (n >= p.end - p.first) return;
  const int slot = n % S::kXSlots, turn = n / S::kXSlots;
  if (turn > 0) wait_for(s.empty[slot], (turn - 1) & 1);
  if (threadIdx.x % 32 == 0) {
    const uint32_t bytes = p.num_groups * kGroupBytes;
    arrive_and_expect(s.full[slot], 2 * bytes);
    for (int half = 0; half < 2; ++half)
      copy_bulk(s.x[slot][half], p.x + (2 * (p.first + n) + half) * p.panel_stride, bytes, s.full[slot]);
  }
  __syncwarp();
}

// A place in a ring of slots in shared memory, as an address and the slot's number.
template <int kSlots, int kStride>
struct RingAddress {
  uint32_t at;
  int slot = 0;
  __device__ void next() {
    at += kStride;
    if (++slot == kSlots) slot = 0, at -= kSlots * kStride;
  }
};

template <int kOffset>
__device__ void copy_16_at(uint32_t to, const uint8_t* from) {
  asm volatile("cp.async.cg.shared.global.L2::256B [%0 + %2], [%1], 16;" ::"r"(to), "l"(from), "n"(kOffset) : "memory");
}
__device__ inline uint4 read_16_at(uint32_t at) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "r"(at) : "memory");
  return v;
}
__device__ inline uint32_t read_byte_at(uint32_t at) {
  uint32_t v;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v) : "r"(at) : "memory");
  return v;
}

// A consumer warp's weights: units on their way, in the order in which they are read.
template <typename S>
class StreamWeights {
 public:
  // Starts copying units [first, end).
  __device__ StreamWeights(typename S::Shared& s, const StreamRows& rows, int first, int end) : left_(end - first) {
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
    low_ = rows.low + 128 * first, high_ = rows.high + 128 * first;
    scales_ = rows.scales + (S::kUnit / 32) * first;
    codes_.at = shared_address(s.codes) + warp * S::kWarpCodes + 16 * lane;
    const uint32_t scales = shared_address(s.scales) + warp * S::kWarpScales;
    scale_.at = scales + (S::kIsFp4 ? 8 * g + c : c / 2);
    scale_to_ = (S::kIsFp4 ? 8 : 4) * lane - (S::kIsFp4 ? 8 * g + c : c / 2);
    for (int i = 0; i < S::kWSlots; ++i) begin_unit(), codes_.next(), scale_.next();
  }
  __device__ void wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(S::kWSlots - 1) : "memory");
    __syncwarp();  // lanes have copied each other's scales
  }
  // Codes of 64 bytes of the rows: e2m1 128 columns, e4m3 64.
  __device__ void read(int run, PackedWeights<S::kKind>& to) const {
    to.low[0] = read_16_at(codes_.at + 1024 * run), to.high[0] = read_16_at(codes_.at + 1024 * run + 512);
    constexpr int kHigh = S::kIsFp4 ? 64 : 4, kRun = S::kIsFp4 ? 4 : 2;
    to.set_scales(read_byte_at(scale_.at + kRun * run), read_byte_at(scale_.at + kRun * run + kHigh));
  }
  // The unit has been read: another takes its slot.
  __device__ void next() {
    __syncwarp();
    begin_unit();
    codes_.next(), scale_.next();
  }

 private:
  // A group of copies, empty behind the end.
  __device__ void begin_unit() {
    if (left_ > 0) {
      copy_16_at<0>(codes_.at, low_), copy_16_at<512>(codes_.at, high_);
      copy_16_at<1024>(codes_.at, low_ + 64), copy_16_at<1536>(codes_.at, high_ + 64);
      low_ += 128, high_ += 128;
      constexpr uint32_t kCopiers = S::kIsFp4 ? 16 : 2, kBytes = S::kIsFp4 ? 8 : 4;
      if (threadIdx.x % 32 < kCopiers)
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(scale_.at + scale_to_), "l"(scales_), "n"(kBytes) : "memory");
      scales_ += S::kUnit / 32;
    }
    --left_;
    asm volatile("cp.async.commit_group;" ::: "memory");
  }

  const uint8_t *low_, *high_, *scales_;
  RingAddress<S::kWSlots, S::kWarps * S::kWarpCodes> codes_;
  RingAddress<S::kWSlots, S::kWarps * S::kWarpScales> scale_;
  uint32_t scale_to_;
  int left_;
};

__device__ inline void wait_at(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{.reg .pred p;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n"
      "@p bra done;\n"
      "bra again;\n"
      "done: }" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
__device__ inline void arrive_at(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Sums of the warpgroup's 64 outputs over the columns of the panels, after init_stream and a barrier of the block. Gives
// whether a scale of the warp goes beyond unpack_panel: then they are not yet right (multiply_beyond).
template <typename S>
__device__ bool multiply_stream(typename S::Shared& s, StreamWeights<S>& weights, const StreamPanels& panels,
                                float (&sums)[S::kTokens / 2]) {
  constexpr int kPanel = S::kTokens * 128, kChunks = S::kUnit / kChunkColumns, kToEmpty = 8 * S::kXSlots;
  constexpr int kBehind = S::kXSlots > 3 ? 2 : 1;  // the chunk whose slot is filled anew: others may be as far behind
  const int warp = __shfl_sync(0xFFFFFFFFu, static_cast<int>(threadIdx.x) / 32, 0);  // known to be one for all lanes
  if (warp == 0) {
    wait_for_kernels_before();
    for (int n = 0; n < S::kXSlots; ++n) bring_panels<S>(s, panels, n);
  }
#pragma unroll
  for (int i = 0; i < S::kTokens / 2; ++i) sums[i] = 0;
  uint32_t a[2][4][4], most = 0, x_parity = 0, released = 0;
  PackedWeights<S::kKind> packed;
  const uint32_t descriptors = static_cast<uint32_t>(panel_descriptor(shared_address(s.x), 0));
  int x_slot = 0;
  constexpr uint64_t kDescriptor = panel_descriptor(0, 0) >> 32 << 32;
  const uint32_t full = shared_address(s.full), is_first_lane = threadIdx.x % 32 == 0;
  const int units = (panels.end - panels.first) / kChunks;
  int until_turn = warp + kBehind;  // chunks until the warp brings one
  for (int u = 0; u < units; ++u) {
    weights.wait();
#pragma unroll
    for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        if (!S::kIsFp4 || half == 0) {
          weights.read(S::kIsFp4 ? chunk : half, packed);
          most = max(most, max(packed.low_code, packed.high_code));
        }
        if (half == 0) wait_at(full + 8 * x_slot, x_parity);
        wait_for_products<1>();  // a[half] is free
        if (half == 1 && released != 0 && is_first_lane) arrive_at(released);
        unpack_panel(packed, half, a[half]);
        fence_products();
#pragma unroll
        for (int k = 0; k < 4; ++k)
          wgmma_bf16(sums, a[half][k], kDescriptor | (descriptors + (2 * x_slot + half) * (kPanel / 16) + 2 * k));
        commit_products();
      }
      if (until_turn-- == 0) {
        until_turn = S::kWarps - 1;
        bring_panels<S>(s, panels, u * kChunks + chunk - kBehind + S::kXSlots);
      }
      released = full + kToEmpty + 8 * x_slot;
      if (++x_slot == S::kXSlots) x_slot = 0, x_parity ^= 1;
    }
    weights.next();
  }
  wait_for_products<0>();
#pragma unroll
  for (int i = 0; i < S::kTokens / 2; ++i) asm volatile("" : "+f"(sums[i])::"memory");  // nothing reads them earlier
  asm volatile("cp.async.wait_all;" ::: "memory");
  return __any_sync(0xFFFFFFFFu, most > PackedWeights<S::kKind>::kMost);
}

// The segments of a tile are the blocks of a cluster: adds their sums in order. A block gets those of every `segments`-th
// eight tokens, from its rank on. Sums are put down in the place of the panels, which have been read; blocks wait for the
// cluster once more before they leave.
template <typename S>
__device__ void add_stream_segments(typename S::Shared& s, int segments, float (&sums)[S::kTokens / 2]) {
  static_assert(sizeof(float) * S::kTokens / 2 * S::kThreads <= sizeof(s.x));
  float* parts = reinterpret_cast<float*>(s.x) + threadIdx.x;
  __syncthreads();
#pragma unroll
  for (int i = 0; i < S::kTokens / 2; ++i) parts[i * S::kThreads] = sums[i];
  wait_for_cluster();
  const int rank = static_cast<int>(cluster_rank());
#pragma unroll
  for (int i = 0; i < S::kTokens / 2; ++i) {
    if (i / 4 % segments != rank) continue;
    float sum = read_in_cluster(parts + i * S::kThreads, 0);
    for (int segment = 1; segment < segments; ++segment)
      sum += read_in_cluster(parts + i * S::kThreads, static_cast<uint32_t>(segment));
    sums[i] = sum;
  }
}

// A warp's sums once more, for scales that no real model has, slowly: mma.sync, everything from memory. Rows as of
// stream_rows.
template <typename S>
__device__ __noinline__ void multiply_beyond(const StreamRows& rows, const DeviceMatrix& m, int64_t row, const DeviceMatrix& m_high,
                                int64_t row_high, const StreamPanels& panels, float (&sums)[S::kTokens / 2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, g = lane / 4, c = lane % 4;
  const auto scales_of = [&](const DeviceMatrix& of, int64_t r) {
    r = min(r + g, int64_t{of.out} - 1);
    return of.scales + (S::kIsFp4 ? r : r / 32) * (of.in / 32);
  };
  const uint8_t *low_scales = scales_of(m, row), *high_scales = scales_of(m_high, row_high);
#pragma unroll
  for (int i = 0; i < S::kTokens / 2; ++i) sums[i] = 0;
#pragma unroll 1
  for (int panel = 2 * panels.first; panel < 2 * panels.end; ++panel) {
    PackedWeights<S::kKind> packed;
    const int run = S::kIsFp4 ? panel / 2 : panel, scale = S::kIsFp4 ? 4 * run + c : 2 * run + c / 2;
    packed.low[0] = *reinterpret_cast<const uint4*>(rows.low + 64 * run);
    packed.high[0] = *reinterpret_cast<const uint4*>(rows.high + 64 * run);
    packed.set_scales(low_scales[scale], high_scales[scale]);
    uint32_t a[4][4];
    unpack_beyond(packed, panel % 2, a);
    const uint8_t* x = panels.x + panel * panels.panel_stride;
#pragma unroll
    for (int i = 0; i < S::kTokens / 8; ++i) {
      if (i >= panels.num_groups) break;
      float(&four)[4] = reinterpret_cast<float(&)[4]>(sums[4 * i]);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const auto pair = [&](int place) {
          return *reinterpret_cast<const uint32_t*>(x + panel_byte(8 * i + g, 16 * k + 2 * c + place));
        };
        multiply_16x8x16(four, a[k], pair(0), pair(8));
      }
    }
  }
}

// A warp's sums over its panels, with rows as of stream_rows. Kernels behind may begin once the first weights are asked for; the
// panels are the work of the kernel before, which is done when this returns.
template <typename S>
__device__ __forceinline__ void stream_sums(typename S::Shared& s, const DeviceMatrix& m, int64_t row, const DeviceMatrix& m_high,
                                            int64_t row_high, const StreamPanels& panels, float (&sums)[S::kTokens / 2]) {
  const StreamRows rows = stream_rows<S::kKind>(m, row, m_high, row_high);
  constexpr int kUnits = S::kUnit / kChunkColumns;
  StreamWeights<S> weights(s, rows, panels.first / kUnits, panels.end / kUnits);
  __syncthreads();
  let_kernels_behind_begin();
  const bool is_beyond = multiply_stream<S>(s, weights, panels, sums);
  wait_for_kernels_before();
  if (!is_beyond) return;
  float again[S::kTokens / 2];  // apart, in memory: the sums stay in registers
  multiply_beyond<S>(rows, m, row, m_high, row_high, panels, again);
#pragma unroll
  for (int i = 0; i < S::kTokens / 2; ++i) sums[i] = again[i];
}

}  // namespace deepinfer
