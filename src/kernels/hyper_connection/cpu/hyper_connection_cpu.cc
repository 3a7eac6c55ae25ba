// SPDX-License-Identifier: MIT
// The CPU rows of the residual-stream ops. Mixing is cut into a few tokens by eight rows of fn, the rest by tokens.
#include <algorithm>
#include <cmath>

#include "kernels/hyper_connection/cpu/hyper_connection_kernels.h"
#include "kernels/hyper_connection/hyper_connection.h"
#include "kernels/hyper_connection/sinkhorn.h"

namespace deepinfer {
namespace {

constexpr int64_t kMixRows = 8;

const uint16_t* words(const bf16* p) { return reinterpret_cast<const uint16_t*>(p); }
uint16_t* words(bf16* p) { return reinterpret_cast<uint16_t*>(p); }

// Four streams, as every released model has, go through a register; others value by value.
void write_all_coefficients(const StreamMixParams& p, const StreamKernels& kernels, float* mixed) {
  const int64_t tokens = p.x.size[0], out = p.fn.out;
  if (p.x.size[1] != 4) {
    for (int64_t t = 0; t < tokens; ++t) write_coefficients(p, t, mixed + t * out);
    return;
  }
  float scale[24];
  for (int i = 0; i < 24; ++i) scale[i] = p.scale[std::min(i / 4, 2)];
  kernels.coefficients(mixed, tokens, {p.base.data, scale, p.epsilon, p.iterations});
  for (int64_t t = 0; t < tokens; ++t) {
    const float* values = mixed + t * out;
    std::copy_n(values, 4, p.pre.row(t));
    std::copy_n(values + 4, 4, p.post.row(t));
    std::copy_n(values + 8, 16, p.comb.row(t));
  }
}

void stream_mix(const ExecutionContext& context, const StreamMixParams& p, const StreamKernels& kernels) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t tokens = p.x.size[0], size = p.fn.in, out = p.fn.out, row_tiles = ceil_div(out, kMixRows),
                tile = kernels.mix_tokens;
  float* mixed = context.scratch->take<float>(tokens * out);
  for_each_item(context, ceil_div(tokens, tile) * row_tiles, static_cast<double>(tokens * size * out),
                [&](int64_t item, int) {
                  const int64_t t = item / row_tiles * tile, o = item % row_tiles * kMixRows;
                  kernels.mix(words(p.x.row(t)), p.x.stride[0], std::min(tile, tokens - t), p.fn.row(o), size,
                              std::min(kMixRows, out - o), mixed + t * out + o, out);
                });
  for (int64_t t = 0; t < tokens; ++t) {
    const float inverse =
        1.f / std::sqrt(kernels.sum_squares(words(p.x.row(t)), size) / static_cast<float>(size) + p.norm_epsilon);
    for (int64_t o = 0; o < out; ++o) mixed[t * out + o] *= inverse;
  }
  write_all_coefficients(p, kernels, mixed);
}

void stream_collapse(const ExecutionContext& context, const StreamCollapseParams& p, const StreamKernels& kernels) {
  for_each_item(context, p.x.size[0], static_cast<double>(p.x.num_elements()), [&](int64_t t, int) {
    kernels.collapse(words(p.x.row(t)), p.x.stride[1], p.x.size[1], p.pre.row(t), p.x.size[2], words(p.out.row(t)));
  });
}

void stream_update(const ExecutionContext& context, const StreamUpdateParams& p, const StreamKernels& kernels) {
  for_each_item(context, p.x.size[0], 4 * static_cast<double>(p.x.num_elements()), [&](int64_t t, int) {
    kernels.update(words(p.x.row(t)), p.x.stride[1], words(p.y.row(t)), p.post.row(t), p.comb.row(t), p.x.size[1],
                   p.x.size[2], words(p.out.row(t)), p.out.stride[1]);
  });
}

}  // namespace

void stream_mix_avx2(const ExecutionContext& c, const StreamMixParams& p) {
  stream_mix(c, p, hyper_connection_kernels_avx2());
}
void stream_mix_avx512(const ExecutionContext& c, const StreamMixParams& p) {
  stream_mix(c, p, hyper_connection_kernels_avx512());
}
void stream_collapse_avx2(const ExecutionContext& c, const StreamCollapseParams& p) {
  stream_collapse(c, p, hyper_connection_kernels_avx2());
}
void stream_collapse_avx512(const ExecutionContext& c, const StreamCollapseParams& p) {
  stream_collapse(c, p, hyper_connection_kernels_avx512());
}
void stream_update_avx2(const ExecutionContext& c, const StreamUpdateParams& p) {
  stream_update(c, p, hyper_connection_kernels_avx2());
}
void stream_update_avx512(const ExecutionContext& c, const StreamUpdateParams& p) {
  stream_update(c, p, hyper_connection_kernels_avx512());
}

}  // namespace deepinfer
