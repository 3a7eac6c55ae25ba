// SPDX-License-Identifier: MIT
#include "kernels/gather_rows/gather_rows.h"

#include <fmt/format.h>

#include "kernels/view_check.h"

namespace deepinfer {

void gather_rows_ref(const ExecutionContext& context, const GatherRowsParams& params);
extern const Launch<GatherRowsParams> kGatherRowsCuda;

Status check(const GatherRowsParams& p) {
  TRY(check_rows("rows", p.rows));
  TRY(check_rows("out", p.out));
  return check_shape("out", p.out, {p.source.size[0], p.rows.size[1]});
}

Status check_values(const GatherRowsParams& p) {
  for (int64_t r = 0; r < p.source.size[0]; ++r) {
    if (p.source(r) < 0 || p.source(r) >= p.rows.size[0])
      return invalid_argument(fmt::format("source({}) is {}, expected a row of {}", r, p.source(r), p.rows.size[0]));
    if (p.out.data == p.rows.data && (p.source(r) < r || (r > 0 && p.source(r) <= p.source(r - 1))))
      return invalid_argument(fmt::format("source({}) is {}: in place, rows only move up", r, p.source(r)));
  }
  return {};
}

Cost estimate(const GatherRowsParams& p) {
  const double bytes = static_cast<double>(p.out.num_elements());
  return {.bytes_read = bytes, .bytes_written = bytes};
}

KernelRows<GatherRowsParams> gather_rows_rows() {
  static const KernelRow<GatherRowsParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", gather_rows_ref},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kGatherRowsCuda}};
  return kRows;
}

}  // namespace deepinfer
