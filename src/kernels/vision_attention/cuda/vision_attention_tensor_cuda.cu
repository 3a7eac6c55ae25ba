// SPDX-License-Identifier: MIT
// Vision attention on tensor cores (mma.sync m16n8k16): a warp has sixteen queries of one head and goes over the image's
// keys, 64 at a time, two tiles in shared memory in turns. Scores are exact products summed in another order than the
// definition's; weights are bf16 pairs, the rounded number and what rounding left, since fp32 weights are the contract:
// two products each with the values. A query's result depends on its own image alone: tiles start at its first key.
#include <limits>

#include "kernels/lanes/cuda/launch.cuh"
#include "kernels/vision_attention/vision_attention.h"

namespace deepinfer {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps, kQueries = 16 * kWarps, kKeys = 64, kHeadDimMax = 128;

// Keys and values of one tile; rows of kDim and 8 more, so that neighbouring rows lie in other banks. Zeros where the
// head is narrower and behind the image.
template <int kDim>
struct Tile {
  static constexpr int kPitch = kDim + 8;
  bf16 k[kKeys][kPitch], v[kKeys][kPitch];
};

__device__ uint32_t address_of(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }

// Four 8x8 matrices, each thread giving the address of one row; transposed or not.
template <bool kIsTransposed>
__device__ void load_matrices(uint32_t (&to)[4], const bf16* row) {
  if constexpr (kIsTransposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address_of(row)));
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address_of(row)));
}

__device__ void multiply_add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ uint32_t bf16_pair(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ float low_of(uint32_t pair) { return __uint_as_float(pair << 16); }
__device__ float high_of(uint32_t pair) { return __uint_as_float(pair & 0xFFFF0000u); }

using Rows = View<const bf16, dim::tokens, dim::heads, dim::head_dim>;

// Eight channels at a time: asynchronous where both sides are aligned (`is_wide`), else one by one.
template <int kDim>
__device__ void fetch_rows(bf16 (*to)[Tile<kDim>::kPitch], const Rows& from, int64_t first, int num, int head,
                           bool is_wide) {
  const int head_dim = static_cast<int>(from.size[2]);
  for (int i = static_cast<int>(threadIdx.x); i < kKeys * kDim / 8; i += kThreads) {
    const int row = i / (kDim / 8), d = i % (kDim / 8) * 8;
    bf16* place = &to[row][d];
    if (row >= num || d >= head_dim) {
      *reinterpret_cast<uint4*>(place) = uint4{};
    } else if (is_wide) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address_of(place)),
                   "l"(&from(first + row, head, d))
                   : "memory");
    } else {
      for (int c = 0; c < 8; ++c) place[c] = d + c < head_dim ? from(first + row, head, d + c) : bf16{0};
    }
  }
}

template <int kDim>
__device__ void fetch_tile(Tile<kDim>& tile, const VisionAttentionParams& p, int64_t first, int64_t end, int head,
                           bool is_wide) {
  const int num = static_cast<int>(end - first < kKeys ? end - first : kKeys);
  if (num > 0) {
    fetch_rows<kDim>(tile.k, p.k, first, num, head, is_wide);
    fetch_rows<kDim>(tile.v, p.v, first, num, head, is_wide);
  }
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// What a thread holds of its warp's sixteen queries: rows lane / 4 and lane / 4 + 8.
template <int kDim>
struct Queries {
  uint32_t q[kDim / 16][4];
  float out[kDim / 8][4];
  float max[2], sum[2];
};

template <int kDim>
__device__ void load_queries(Queries<kDim>& queries, const Rows& q, int64_t first, int64_t end, int head) {
  const int lane = static_cast<int>(threadIdx.x) % 32, head_dim = static_cast<int>(q.size[2]);
  const auto value = [&](int64_t row, int d) {
    return uint32_t{row < end && d < head_dim ? q(row, head, d).bits : uint16_t{0}};
  };
#pragma unroll
  for (int c = 0; c < kDim / 16; ++c)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t row = first + lane / 4 + i % 2 * 8;
      const int d = c * 16 + lane % 4 * 2 + i / 2 * 8;
      queries.q[c][i] = value(row, d) | value(row, d + 1) << 16;
    }
#pragma unroll
  for (auto& sums : queries.out)
    for (float& sum : sums) sum = 0;
  for (int i = 0; i < 2; ++i) queries.max[i] = -std::numeric_limits<float>::infinity(), queries.sum[i] = 0;
}

// Scores of a tile times `scale`, -infinity behind its keys.
template <int kDim>
__device__ void score_tile(const Tile<kDim>& tile, const Queries<kDim>& queries, int num_keys, float scale,
                           float (&score)[kKeys / 8][4]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, matrix = lane / 8;
#pragma unroll
  for (int j = 0; j < kKeys / 8; j += 2) {
    for (int i = 0; i < 4; ++i) score[j][i] = score[j + 1][i] = 0;
#pragma unroll
    for (int c = 0; c < kDim / 16; ++c) {
      uint32_t keys[4];
      load_matrices<false>(keys, &tile.k[(j + matrix / 2) * 8 + lane % 8][c * 16 + matrix % 2 * 8]);
      multiply_add(score[j], queries.q[c], keys[0], keys[1]);
      multiply_add(score[j + 1], queries.q[c], keys[2], keys[3]);
    }
  }
#pragma unroll
  for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const bool is_key = j * 8 + lane % 4 * 2 + i % 2 < num_keys;
      score[j][i] = is_key ? score[j][i] * scale : -std::numeric_limits<float>::infinity();
    }
}

// Scores become weights, exp2(score - maximum); what was summed so far follows the new maximum.
template <int kDim>
__device__ void weigh_tile(float (&score)[kKeys / 8][4], Queries<kDim>& queries) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float max = queries.max[r];
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j) max = fmaxf(max, fmaxf(score[j][2 * r], score[j][2 * r + 1]));
    max = fmaxf(max, __shfl_xor_sync(0xFFFFFFFFu, max, 1));
    max = fmaxf(max, __shfl_xor_sync(0xFFFFFFFFu, max, 2));
    const float rescale = exp2f(queries.max[r] - max);
    queries.max[r] = max;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < kKeys / 8; ++j)
#pragma unroll
      for (int i = 2 * r; i < 2 * r + 2; ++i) sum += score[j][i] = exp2f(score[j][i] - max);
    queries.sum[r] = queries.sum[r] * rescale + sum;
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d) queries.out[d][2 * r] *= rescale, queries.out[d][2 * r + 1] *= rescale;
  }
}

template <int kDim>
__device__ void add_values(const Tile<kDim>& tile, const float (&weight)[kKeys / 8][4], Queries<kDim>& queries) {
  const int lane = static_cast<int>(threadIdx.x) % 32, matrix = lane / 8;
#pragma unroll
  for (int j = 0; j < kKeys / 8; j += 2) {
    uint32_t rounded[4], rest[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float low = weight[j + i / 2][i % 2 * 2], high = weight[j + i / 2][i % 2 * 2 + 1];
      rounded[i] = bf16_pair(low, high);
      rest[i] = bf16_pair(low - low_of(rounded[i]), high - high_of(rounded[i]));
    }
#pragma unroll
    for (int d = 0; d < kDim / 8; d += 2) {
      uint32_t values[4];
      load_matrices<true>(values, &tile.v[j * 8 + matrix % 2 * 8 + lane % 8][(d + matrix / 2) * 8]);
      for (int n = 0; n < 2; ++n) {
        multiply_add(queries.out[d + n], rounded, values[2 * n], values[2 * n + 1]);
        multiply_add(queries.out[d + n], rest, values[2 * n], values[2 * n + 1]);
      }
    }
  }
}

template <int kDim>
__device__ void store(const Queries<kDim>& queries, const VisionAttentionParams& p, int64_t first, int64_t end,
                      int head) {
  const int lane = static_cast<int>(threadIdx.x) % 32, head_dim = static_cast<int>(p.out.size[2]);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float sum = queries.sum[r];
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
    sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
    const int64_t row = first + lane / 4 + r * 8;
    if (row >= end) continue;
#pragma unroll
    for (int d = 0; d < kDim / 8; ++d)
      for (int i = 0; i < 2; ++i)
        if (const int at = d * 8 + lane % 4 * 2 + i; at < head_dim)
          p.out(row, head, at) = to_bf16(queries.out[d][2 * r + i] / sum);
  }
}

template <int kDim>
__global__ void __launch_bounds__(kThreads) attend_kernel(VisionAttentionParams p, Range image, bool is_wide) {
  extern __shared__ __align__(16) uint8_t memory[];
  auto* tiles = reinterpret_cast<Tile<kDim>*>(memory);
  constexpr float kLog2E = 1.44269504f;
  const int head = static_cast<int>(blockIdx.y);
  const int64_t first = image.begin + int64_t{blockIdx.x} * kQueries + static_cast<int>(threadIdx.x) / 32 * 16;
  const int num_tiles = static_cast<int>((image.end - image.begin + kKeys - 1) / kKeys);
  fetch_tile(tiles[0], p, image.begin, image.end, head, is_wide);
  Queries<kDim> queries;
  load_queries(queries, p.q, first, image.end, head);
  for (int t = 0; t < num_tiles; ++t) {
    const int64_t begin = image.begin + int64_t{t} * kKeys;
    fetch_tile(tiles[(t + 1) % 2], p, begin + kKeys, image.end, head, is_wide);
    asm volatile("cp.async.wait_group 1;" ::: "memory");
    __syncthreads();
    const int num_keys = static_cast<int>(image.end - begin < kKeys ? image.end - begin : kKeys);
    float weight[kKeys / 8][4];
    score_tile(tiles[t % 2], queries, num_keys, p.scale * kLog2E, weight);
    weigh_tile(weight, queries);
    add_values(tiles[t % 2], weight, queries);
    __syncthreads();  // the tile may be written again
  }
  store(queries, p, first, image.end, head);
}

bool is_aligned(const Rows& rows) {
  return reinterpret_cast<uintptr_t>(rows.data) % 16 == 0 && rows.stride[0] % 8 == 0 && rows.stride[1] % 8 == 0;
}

template <int kDim>
void launch(const ExecutionContext& context, const VisionAttentionParams& p, bool is_wide) {
  constexpr int64_t kBytes = 2 * sizeof(Tile<kDim>);
  allow_shared_memory(attend_kernel<kDim>, kBytes);
  for (const Range& image : p.images) {
    if (image.empty()) continue;
    const dim3 grid(num_blocks(image.size(), kQueries), static_cast<unsigned>(p.q.size[1]));
    attend_kernel<kDim><<<grid, kThreads, kBytes, stream_of(context)>>>(p, image, is_wide);
  }
}

void vision_attention_tensor_cuda(const ExecutionContext& context, const VisionAttentionParams& p) {
  const int64_t head_dim = p.q.size[2];
  CHECK(head_dim <= kHeadDimMax);
  const bool is_wide = head_dim % 8 == 0 && is_aligned(p.k) && is_aligned(p.v);
  if (head_dim <= 16) launch<16>(context, p, is_wide);
  else if (head_dim <= 32) launch<32>(context, p, is_wide);
  else if (head_dim <= 64) launch<64>(context, p, is_wide);
  else launch<128>(context, p, is_wide);
  context.device->launched("vision_attention");
}

}  // namespace

extern const Launch<VisionAttentionParams> kVisionAttentionTensorCuda = vision_attention_tensor_cuda;

}  // namespace deepinfer
