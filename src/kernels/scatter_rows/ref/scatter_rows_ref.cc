// SPDX-License-Identifier: MIT
#include <cstring>

#include "kernels/scatter_rows/scatter_rows.h"

namespace deepinfer {

void scatter_rows_ref(const ExecutionContext&, const ScatterRowsParams& p) {
  for (int64_t r = 0; r < p.rows.size[0]; ++r)
    if (p.offset_bytes(r) != kSkipRow)
      std::memcpy(p.base + p.offset_bytes(r), p.rows.row(r), static_cast<size_t>(p.rows.size[1]));
}

}  // namespace deepinfer
