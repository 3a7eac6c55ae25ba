// SPDX-License-Identifier: MIT
#include "kernels/embedding/embedding.h"
#include "kernels/lanes/cuda/begin_overlapped.cuh"

namespace deepinfer {
namespace {

// A block copies one token's row into all its streams.
__global__ void embed_rows(EmbeddingParams p) {
  begin_overlapped();
  const int64_t t = blockIdx.x;
  const bool is_image = p.image_row.data && p.image_row(t) >= 0;
  const bf16* row = is_image ? p.image_rows.row(p.image_row(t)) : p.embed.row(p.token(t));
  for (int64_t i = threadIdx.x; i < p.embed.in; i += blockDim.x) {
    const bf16 value = row[i];
    for (int64_t s = 0; s < p.out.size[1]; ++s) p.out(t, s, i) = value;
  }
}

void embedding_cuda(const ExecutionContext& context, const EmbeddingParams& p) {
  if (p.token.size[0] == 0) return;
  launch_overlapped(context, {num_blocks(p.token.size[0], 1), 256}, embed_rows, p);
  context.device->launched("embedding");
}

}  // namespace

extern const Launch<EmbeddingParams> kEmbeddingCuda = embedding_cuda;

}  // namespace deepinfer
