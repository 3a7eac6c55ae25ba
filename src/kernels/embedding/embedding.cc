// SPDX-License-Identifier: MIT
#include "kernels/embedding/embedding.h"

#include "kernels/view_check.h"

namespace deepinfer {

void embedding_ref(const ExecutionContext& context, const EmbeddingParams& params);
extern const Launch<EmbeddingParams> kEmbeddingCuda;

Status check(const EmbeddingParams& p) {
  const int64_t tokens = p.token.size[0];
  TRY(check_rows("out", p.out));
  TRY(check_size("out: tokens", p.out.size[0], tokens));
  TRY(check_size("out: hidden", p.out.size[2], p.embed.in));
  if (!p.image_row.data) return {};
  TRY(check_rows("image_rows", p.image_rows));
  return check_shape("image_row", p.image_row, {tokens});
}

Cost estimate(const EmbeddingParams& p) {
  return {.bytes_read = 2 * static_cast<double>(p.token.size[0] * p.embed.in),
          .bytes_written = 2 * static_cast<double>(p.out.num_elements())};
}

KernelRows<EmbeddingParams> embedding_rows() {
  static const KernelRow<EmbeddingParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", embedding_ref},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kEmbeddingCuda}};
  return kRows;
}

}  // namespace deepinfer
