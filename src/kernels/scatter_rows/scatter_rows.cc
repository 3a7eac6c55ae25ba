// SPDX-License-Identifier: MIT
#include "kernels/scatter_rows/scatter_rows.h"

#include "kernels/view_check.h"

namespace deepinfer {

void scatter_rows_ref(const ExecutionContext& context, const ScatterRowsParams& params);
extern const Launch<ScatterRowsParams> kScatterRowsCuda;

Status check(const ScatterRowsParams& p) {
  TRY(check_rows("rows", p.rows));
  if (p.rows.size[0] > 0 && !p.base) return invalid_argument("base: is null");
  return check_shape("offset_bytes", p.offset_bytes, {p.rows.size[0]});
}

Cost estimate(const ScatterRowsParams& p) {
  const double bytes = static_cast<double>(p.rows.num_elements());
  return {.bytes_read = bytes, .bytes_written = bytes};
}

KernelRows<ScatterRowsParams> scatter_rows_rows() {
  static const KernelRow<ScatterRowsParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", scatter_rows_ref},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kScatterRowsCuda}};
  return kRows;
}

}  // namespace deepinfer
