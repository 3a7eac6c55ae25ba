// SPDX-License-Identifier: MIT
#include "kernels/norm/norm.h"

#include "kernels/view_check.h"

namespace deepinfer {

void norm_ref(const ExecutionContext& context, const NormParams& params);
void norm_avx2(const ExecutionContext& context, const NormParams& params);
void norm_avx512(const ExecutionContext& context, const NormParams& params);
extern const Launch<NormParams> kNormCuda, kNormFastCuda;

Status check(const NormParams& p) {
  TRY(check_rows("x", p.x));
  TRY(check_rows("out", p.out));
  TRY(check_size("weight: size", p.weight.size, p.x.size[1]));
  return check_shape("out", p.out, p.x.size);
}

Cost estimate(const NormParams& p) {
  const double n = static_cast<double>(p.x.num_elements());
  return {.flops = 4 * n, .bytes_read = 2 * n + 2 * static_cast<double>(p.weight.size), .bytes_written = 2 * n};
}

KernelRows<NormParams> norm_rows() {
  static const KernelRow<NormParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", norm_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", norm_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq", norm_avx512},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kNormCuda},
      {"cuda/sm90_fast", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kNormFastCuda, false}};
  return kRows;
}

}  // namespace deepinfer
