// SPDX-License-Identifier: MIT
// Norm, rotation and packing of a row in one kernel: a block has a row, a thread eight of its columns, in registers
// throughout. Every value is rounded as the three kernels round it.
#include "kernels/lanes/cuda/begin_overlapped.cuh"
#include "kernels/lanes/cuda/eight.cuh"
#include "kernels/lanes/cuda/lane_places.cuh"
#include "kernels/pack_keys/pack_keys.h"
#include "kernels/quantize/rounding.h"

namespace deepinfer {

extern const Launch<NormParams> kNormCuda;
extern const Launch<RopeParams> kRopeCuda;
extern const Launch<PackRowsParams> kPackRowsCuda;

namespace {

constexpr int kMostThreads = 128, kGroupThreads = 4;  // of the 32 columns that share a scale

// Four pairs of neighbouring channels, `first` and the next.
__device__ void turn(const PackKeysParams& p, int64_t t, int first, Eight& eight) {
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    const float a = to_float(eight.values[2 * k]), b = to_float(eight.values[2 * k + 1]);
    const float c = p.cos(t, first + k), s = p.sin(t, first + k);
    eight.values[2 * k] = to_bf16(a * c - b * s);
    eight.values[2 * k + 1] = to_bf16(a * s + b * c);
  }
}

__device__ void pack(const Eight& eight, int column, int columns, uint8_t* out) {
  float amax = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) amax = fmaxf(amax, fabsf(to_float(eight.values[i])));
  for (int step = 1; step < kGroupThreads; step *= 2) amax = fmaxf(amax, __shfl_xor_sync(0xFFFFFFFFu, amax, step));
  const uint8_t scale = fp8_block_scale(amax);
  const float by = e8m0_to_float(scale);
#pragma unroll
  for (int i = 0; i < 8; i += 4) {
    uint32_t codes = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) codes |= uint32_t{float_to_e4m3(to_float(eight.values[i + j]) / by)} << (8 * j);
    *reinterpret_cast<uint32_t*>(out + column + i) = codes;
  }
  if (column % 32 == 0) out[columns + column / 32] = scale;
}

template <bool kInLanes>
__global__ void __launch_bounds__(kMostThreads) pack_keys_kernel(const __grid_constant__ PackKeysParams p) {
  extern __shared__ __align__(16) float squares[];
  __shared__ BlockSum<kMostThreads> sum;
  const int columns = static_cast<int>(p.x.size[1]), column = 8 * static_cast<int>(threadIdx.x);
  const int64_t t = blockIdx.x;
  const Eight weight = load_eight(p.norm_weight.data + column);
  begin_overlapped();
  Eight eight = load_eight(p.x.row(t) + column);
  float own = 0;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float value = to_float(eight.values[i]);
    if constexpr (kInLanes) squares[lane_place(column + i)] = value * value;
    else own = __fmaf_rn(value, value, own);
  }
  const float all = kInLanes ? sum.of_places(squares, columns) : sum.of_threads(own);
  eight = normed(eight, weight, 1.f / sqrtf(all / static_cast<float>(columns) + p.norm_epsilon));
  if (const int behind = column - (columns - 2 * static_cast<int>(p.cos.size[1])); behind >= 0) turn(p, t, behind / 2, eight);
  const int64_t offset = p.to.offset_bytes.data ? p.to.offset_bytes(t) : t * p.to.stride_bytes;
  if (offset != kSkipRow) pack(eight, column, columns, p.to.base + offset);  // the whole block or none of it
}

// Whole warps of eight columns, pairs by fours, rows that begin at multiples of four bytes; offsets are those of caches,
// which have them in common with their base and strides.
bool takes(const PackKeysParams& p) {
  const int64_t columns = p.x.size[1];
  return columns % 256 == 0 && columns <= 8 * kMostThreads && p.cos.size[1] % 4 == 0 && 2 * p.cos.size[1] <= columns &&
         p.x.stride[0] % 8 == 0 && p.to.stride_bytes % 4 == 0 && reinterpret_cast<uintptr_t>(p.to.base) % 4 == 0 &&
         (reinterpret_cast<uintptr_t>(p.x.data) | reinterpret_cast<uintptr_t>(p.norm_weight.data)) % 16 == 0;
}

template <bool kInLanes>
void pack_keys(const ExecutionContext& context, const PackKeysParams& p) {
  if (p.x.num_elements() == 0) return;
  if (!takes(p)) {
    kNormCuda(context, norm_of(p));
    kRopeCuda(context, rope_of(p));
    return kPackRowsCuda(context, pack_of(p));
  }
  const int64_t columns = p.x.size[1], shared = kInLanes ? columns * static_cast<int64_t>(sizeof(float)) : 0;
  launch_overlapped(context, {num_blocks(p.x.size[0], 1), static_cast<unsigned>(columns / 8), shared},
                    pack_keys_kernel<kInLanes>, p);
  context.device->launched("pack_keys");
}

}  // namespace

extern const Launch<PackKeysParams> kPackKeysCuda = pack_keys<true>;
extern const Launch<PackKeysParams> kPackKeysFastCuda = pack_keys<false>;

}  // namespace deepinfer
