// SPDX-License-Identifier: MIT
// A block computes kHeads heads of one token over its entry list, 64 entries at a time, as the reference does: packed
// rows are read once per block of heads and unpacked into shared memory. The order of every sum is that of the contract,
// so the split over blocks and threads shows nowhere.
#include "kernels/lanes/cuda/lane_sum.cuh"
#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/lanes/exponential.h"
#include "kernels/quantize/cuda/small_formats.cuh"
#include "kernels/sparse_attention/entry_list.h"

namespace deepinfer {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kHeads = 8, kPadding = 8;
constexpr int kHeadsPerThread = kHeads * kAttentionBlock / kThreads;  // of scores: a thread has one entry
static_assert(kHeads == kWarps && kAttentionBlock == 64);

struct Shared {
  float* q;                         // [kHeads, head_dim]
  bf16* entries;                    // [64, head_dim + kPadding]
  float* scores;                    // [kHeads, 64], then probabilities
  float* probabilities;             // [64, kHeads], rounded to bf16
  float* highest;                   // [kHeads]
  float* sum;                       // [kHeads]
  float* decay;                     // [kHeads]
  int* is_valid;                    // [64]
  int64_t row_stride;               // of entries
};

__device__ Shared carve(float4* base, int64_t head_dim) {
  Shared s;
  s.row_stride = head_dim + kPadding;
  s.q = reinterpret_cast<float*>(base);
  s.scores = s.q + kHeads * head_dim;
  s.probabilities = s.scores + kHeads * kAttentionBlock;
  s.highest = s.probabilities + kHeads * kAttentionBlock;
  s.sum = s.highest + kHeads;
  s.decay = s.sum + kHeads;
  s.is_valid = reinterpret_cast<int*>(s.decay + kHeads);
  s.entries = reinterpret_cast<bf16*>(s.is_valid + kAttentionBlock);
  return s;
}
constexpr int64_t shared_bytes(int64_t head_dim) {
  return 4 * (kHeads * head_dim + 2 * kHeads * kAttentionBlock + 3 * kHeads + kAttentionBlock) +
         2 * kAttentionBlock * (head_dim + kPadding);
}

// Unpacks entries [begin, begin + 64) of the list; missing ones become zeros. True if one is there.
__device__ bool load_entries(const SparseAttentionParams& p, const Shared& s, int64_t t, int64_t begin, int64_t total) {
  const int64_t head_dim = p.q.size[2];
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  bool any = false;
  for (int e = warp; e < kAttentionBlock; e += kWarps) {
    const EntryRow entry = begin + e < total ? entry_row(p, t, begin + e) : EntryRow{};
    any |= entry.row != nullptr;
    if (lane == 0) s.is_valid[e] = entry.row != nullptr;
    for (int64_t d = lane; d < head_dim; d += 32)
      s.entries[e * s.row_stride + d] = entry.row ? unpack_column(entry.format, entry.row, head_dim, d) : bf16{};
  }
  return __syncthreads_or(any);
}

__device__ float4 widen(uint2 four) {
  return {__uint_as_float(four.x << 16), __uint_as_float(four.x & 0xFFFF0000u), __uint_as_float(four.y << 16),
          __uint_as_float(four.y & 0xFFFF0000u)};
}

// Each thread: one entry against kHeadsPerThread heads.
__device__ void score_entries(const SparseAttentionParams& p, const Shared& s) {
  const int64_t head_dim = p.q.size[2];
  const int e = static_cast<int>(threadIdx.x) % kAttentionBlock;
  const int first_head = static_cast<int>(threadIdx.x) / kAttentionBlock * kHeadsPerThread;
  float lanes[kHeadsPerThread][kLaneThreads] = {};
  const bf16* entry = s.entries + e * s.row_stride;
  for (int64_t d = 0; d < head_dim; d += kLaneThreads) {
#pragma unroll
    for (int l = 0; l < kLaneThreads; l += 4) {
      const float4 value = widen(*reinterpret_cast<const uint2*>(entry + d + l));
#pragma unroll
      for (int h = 0; h < kHeadsPerThread; ++h) {
        const float4 q = *reinterpret_cast<const float4*>(s.q + (first_head + h) * head_dim + d + l);
        lanes[h][l] = __fmaf_rn(q.x, value.x, lanes[h][l]);  // exact products: lanes/lanes.h
        lanes[h][l + 1] = __fmaf_rn(q.y, value.y, lanes[h][l + 1]);
        lanes[h][l + 2] = __fmaf_rn(q.z, value.z, lanes[h][l + 2]);
        lanes[h][l + 3] = __fmaf_rn(q.w, value.w, lanes[h][l + 3]);
      }
    }
  }
#pragma unroll
  for (int h = 0; h < kHeadsPerThread; ++h)
    s.scores[(first_head + h) * kAttentionBlock + e] =
        s.is_valid[e] ? p.scale * fold_lanes(lanes[h]) : -__int_as_float(0x7F800000);
}

// A warp has one head: its new maximum, its probabilities and their sum in lane order.
__device__ void weigh(const Shared& s) {
  const int head = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  float* scores = s.scores + head * kAttentionBlock;
  const float before = s.highest[head];
  float highest = fmaxf(before, fmaxf(scores[lane], scores[lane + 32]));
  for (int half = 16; half > 0; half /= 2) highest = fmaxf(highest, __shfl_xor_sync(0xFFFFFFFFu, highest, half));
  for (int e = lane; e < kAttentionBlock; e += 32) {
    const float probability = exp_in_lanes(scores[e] - highest);
    scores[e] = probability;
    s.probabilities[e * kHeads + head] = round_to_bf16(probability);
  }
  __syncwarp();
  float sum = 0;
  if (lane < kLaneThreads) sum = sum_in_lanes(kAttentionBlock, [&](int64_t e) { return scores[e]; });
  if (lane != 0) return;
  const float decay = exp_in_lanes(before - highest);
  s.decay[head] = decay;
  s.sum[head] = s.sum[head] * decay + sum;
  s.highest[head] = highest;
}

// Each thread: kPairs pairs of channels of all heads, entries ascending.
template <int kPairs>
__device__ void accumulate(const Shared& s, int64_t head_dim, int size, float (&acc)[kPairs][kHeads][2]) {
#pragma unroll
  for (int c = 0; c < kPairs; ++c) {
    const int64_t d = 2 * (int64_t{threadIdx.x} + c * kThreads);
    if (d >= head_dim) return;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) acc[c][h][0] *= s.decay[h], acc[c][h][1] *= s.decay[h];
    for (int e = 0; e < size; ++e) {
      const uint32_t two = *reinterpret_cast<const uint32_t*>(s.entries + e * s.row_stride + d);
      const float low = __uint_as_float(two << 16), high = __uint_as_float(two & 0xFFFF0000u);
      const float4* probabilities = reinterpret_cast<const float4*>(s.probabilities + e * kHeads);
      const float4 first = probabilities[0], second = probabilities[1];
      const float weight[kHeads] = {first.x, first.y, first.z, first.w, second.x, second.y, second.z, second.w};
#pragma unroll
      for (int h = 0; h < kHeads; ++h) {
        acc[c][h][0] = __fmaf_rn(weight[h], low, acc[c][h][0]);
        acc[c][h][1] = __fmaf_rn(weight[h], high, acc[c][h][1]);
      }
    }
  }
}

template <int kPairs>
__global__ void __launch_bounds__(kThreads) attention_kernel(SparseAttentionParams p) {
  extern __shared__ float4 base[];
  const int64_t t = blockIdx.y, head_dim = p.q.size[2], num_heads = p.q.size[1], total = num_entries(p);
  const int64_t head_begin = int64_t{blockIdx.x} * kHeads;
  const Shared s = carve(base, head_dim);
  for (int64_t i = threadIdx.x; i < kHeads * head_dim; i += kThreads) {
    const int64_t h = head_begin + i / head_dim;
    s.q[i] = h < num_heads ? to_float(p.q(t, h, i % head_dim)) : 0.f;
  }
  if (threadIdx.x < kHeads) s.highest[threadIdx.x] = -1e30f, s.sum[threadIdx.x] = 0.f;
  float acc[kPairs][kHeads][2] = {};
  for (int64_t begin = 0; begin < total; begin += kAttentionBlock) {
    __syncthreads();                                        // the block before has been used
    if (!load_entries(p, s, t, begin, total)) continue;     // nothing there: decay 1, nothing to add
    score_entries(p, s);
    __syncthreads();
    weigh(s);
    __syncthreads();
    const int64_t left = total - begin;
    accumulate<kPairs>(s, head_dim, static_cast<int>(left < kAttentionBlock ? left : kAttentionBlock), acc);
  }
  __syncthreads();
#pragma unroll
  for (int c = 0; c < kPairs; ++c) {
    const int64_t d = 2 * (int64_t{threadIdx.x} + c * kThreads);
    if (d >= head_dim) continue;
    for (int h = 0; h < kHeads; ++h) {
      if (head_begin + h >= num_heads) break;
      const float denominator = s.sum[h] + exp_in_lanes(p.sink[head_begin + h] - s.highest[h]);
#pragma unroll
      for (int k = 0; k < kHeads; ++k)  // constant indices keep acc in registers
        if (k == h) {
          p.out(t, head_begin + h, d) = to_bf16(acc[c][k][0] / denominator);
          p.out(t, head_begin + h, d + 1) = to_bf16(acc[c][k][1] / denominator);
        }
    }
  }
}

template <int kPairs>
void launch_attention(const ExecutionContext& context, const SparseAttentionParams& p) {
  const int64_t shared = shared_bytes(p.q.size[2]);
  const dim3 grid(num_blocks(p.q.size[1], kHeads), num_blocks(p.q.size[0], 1));
  allow_shared_memory(attention_kernel<kPairs>, shared);
  attention_kernel<kPairs><<<grid, kThreads, shared, stream_of(context)>>>(p);
}

void sparse_attention_cuda(const ExecutionContext& context, const SparseAttentionParams& p) {
  if (p.out.num_elements() == 0) return;
  CHECK(p.q.size[2] <= 2 * 2 * kThreads);
  if (p.q.size[2] <= 2 * kThreads) launch_attention<1>(context, p);
  else launch_attention<2>(context, p);
  context.device->launched("sparse_attention");
}

}  // namespace

extern const Launch<SparseAttentionParams> kSparseAttentionCuda = sparse_attention_cuda;

}  // namespace deepinfer
