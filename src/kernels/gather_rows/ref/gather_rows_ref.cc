// SPDX-License-Identifier: MIT
#include <cstring>

#include "kernels/gather_rows/gather_rows.h"

namespace deepinfer {

void gather_rows_ref(const ExecutionContext&, const GatherRowsParams& p) {
  for (int64_t r = 0; r < p.source.size[0]; ++r)
    if (p.out.row(r) != p.rows.row(p.source(r)))
      std::memcpy(p.out.row(r), p.rows.row(p.source(r)), static_cast<size_t>(p.out.size[1]));
}

}  // namespace deepinfer
