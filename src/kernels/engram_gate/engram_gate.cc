// SPDX-License-Identifier: MIT
#include "kernels/engram_gate/engram_gate.h"

#include "kernels/view_check.h"

namespace deepinfer {

void engram_rows_ref(const ExecutionContext& context, const EngramRowsParams& params);
void engram_gate_ref(const ExecutionContext& context, const EngramGateParams& params);
void engram_gate_avx2(const ExecutionContext& context, const EngramGateParams& params);
void engram_gate_avx512(const ExecutionContext& context, const EngramGateParams& params);
extern const Launch<EngramRowsParams> kEngramRowsCuda;
extern const Launch<EngramGateParams> kEngramGateCuda;

Status check(const EngramRowsParams& p) {
  if (p.table.empty()) return invalid_argument("table: is empty");
  TRY(check_rows("row", p.row));
  TRY(check_rows("out", p.out));
  return check_shape("out", p.out, {p.row.size[0], p.row.size[1] * p.table.columns});
}

Status check(const EngramGateParams& p) {
  const int64_t tokens = p.x.size[0], streams = p.x.size[1], hidden = p.x.size[2];
  TRY(check_rows("kv", p.kv));
  TRY(check_planes("x", p.x));
  TRY(check_shape("kv", p.kv, {tokens, (streams + 1) * hidden}));
  TRY(check_size("q_weight: out", p.q_weight.out, streams));
  TRY(check_size("q_weight: in", p.q_weight.in, hidden));
  TRY(check_size("k_weight: out", p.k_weight.out, streams));
  TRY(check_size("k_weight: in", p.k_weight.in, hidden));
  if (p.is_image.data) TRY(check_shape("is_image", p.is_image, {tokens}));
  return {};
}

Cost estimate(const EngramRowsParams& p) {
  const double rows = static_cast<double>(p.row.num_elements()), columns = static_cast<double>(p.table.columns);
  return {
      .flops = rows * columns, .bytes_read = rows * (columns + columns / 32 + 8), .bytes_written = 2 * rows * columns};
}
Cost estimate(const EngramGateParams& p) {
  const double n = static_cast<double>(p.x.num_elements());
  return {.flops = 10 * n, .bytes_read = 2 * n + 2 * static_cast<double>(p.kv.num_elements()), .bytes_written = 2 * n};
}

KernelRows<EngramRowsParams> engram_rows_rows() {
  static const KernelRow<EngramRowsParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", engram_rows_ref},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kEngramRowsCuda}};
  return kRows;
}
KernelRows<EngramGateParams> engram_gate_rows() {
  static const KernelRow<EngramGateParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", engram_gate_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", engram_gate_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq", engram_gate_avx512},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kEngramGateCuda}};
  return kRows;
}

}  // namespace deepinfer
