// SPDX-License-Identifier: MIT
#include "kernels/vision_activation/vision_activation.h"

#include "kernels/view_check.h"

namespace deepinfer {

void gated_silu_ref(const ExecutionContext& context, const GatedSiluParams& params);
extern const Launch<GatedSiluParams> kGatedSiluCuda;
void gelu_ref(const ExecutionContext& context, const GeluParams& params);
extern const Launch<GeluParams> kGeluCuda;
void residual_ref(const ExecutionContext& context, const ResidualParams& params);
extern const Launch<ResidualParams> kResidualCuda;

Status check(const GatedSiluParams& p) {
  TRY(check_rows("gate", p.gate));
  TRY(check_rows("up", p.up));
  TRY(check_rows("out", p.out));
  TRY(check_shape("up", p.up, p.gate.size));
  return check_shape("out", p.out, p.gate.size);
}
Status check(const GeluParams& p) { return check_rows("x", p.x); }
Status check(const ResidualParams& p) {
  TRY(check_rows("x", p.x));
  TRY(check_rows("y", p.y));
  return check_shape("y", p.y, p.x.size);
}

Cost estimate(const GatedSiluParams& p) {
  const double n = static_cast<double>(p.out.num_elements());
  return {.flops = 5 * n, .bytes_read = 4 * n, .bytes_written = 2 * n};
}
Cost estimate(const GeluParams& p) {
  const double n = static_cast<double>(p.x.num_elements());
  return {.flops = 4 * n, .bytes_read = 2 * n, .bytes_written = 2 * n};
}
Cost estimate(const ResidualParams& p) {
  const double n = static_cast<double>(p.x.num_elements());
  return {.flops = n, .bytes_read = 4 * n, .bytes_written = 2 * n};
}

KernelRows<GatedSiluParams> gated_silu_rows() {
  static const KernelRow<GatedSiluParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", gated_silu_ref},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kGatedSiluCuda}};
  return kRows;
}
KernelRows<GeluParams> gelu_rows() {
  static const KernelRow<GeluParams> kRows[] = {{"ref", Backend::kRef, CpuLevel::kRef, "any machine", gelu_ref},
                                                {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kGeluCuda}};
  return kRows;
}
KernelRows<ResidualParams> residual_rows() {
  static const KernelRow<ResidualParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", residual_ref},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kResidualCuda}};
  return kRows;
}

}  // namespace deepinfer
