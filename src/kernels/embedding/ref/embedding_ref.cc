// SPDX-License-Identifier: MIT
#include <cstring>

#include "kernels/embedding/embedding.h"

namespace deepinfer {

void embedding_ref(const ExecutionContext&, const EmbeddingParams& p) {
  for (int64_t t = 0; t < p.token.size[0]; ++t) {
    const bool is_image = p.image_row.data && p.image_row(t) >= 0;
    const bf16* row = is_image ? p.image_rows.row(p.image_row(t)) : p.embed.row(p.token(t));
    for (int64_t s = 0; s < p.out.size[1]; ++s)
      std::memcpy(&p.out(t, s, 0), row, static_cast<size_t>(p.embed.in) * sizeof(bf16));
  }
}

}  // namespace deepinfer
