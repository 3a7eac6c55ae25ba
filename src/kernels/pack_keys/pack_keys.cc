// SPDX-License-Identifier: MIT
#include "kernels/pack_keys/pack_keys.h"

#include "kernels/view_check.h"

namespace deepinfer {

void norm_ref(const ExecutionContext& context, const NormParams& params);
void norm_avx2(const ExecutionContext& context, const NormParams& params);
void norm_avx512(const ExecutionContext& context, const NormParams& params);
void rope_ref(const ExecutionContext& context, const RopeParams& params);
void rope_avx2(const ExecutionContext& context, const RopeParams& params);
void rope_avx512(const ExecutionContext& context, const RopeParams& params);
void pack_rows_ref(const ExecutionContext& context, const PackRowsParams& params);
void pack_rows_avx2(const ExecutionContext& context, const PackRowsParams& params);
void pack_rows_avx512(const ExecutionContext& context, const PackRowsParams& params);
extern const Launch<PackKeysParams> kPackKeysCuda, kPackKeysFastCuda;

Status check(const PackKeysParams& p) {
  TRY(check(norm_of(p)));
  TRY(check(rope_of(p)));
  return check(pack_of(p));
}

// Normed and turned rows stay where they are made.
Cost estimate(const PackKeysParams& p) {
  const Cost norm = estimate(norm_of(p)), rope = estimate(rope_of(p)), pack = estimate(pack_of(p));
  const double turned = 4 * static_cast<double>(p.x.size[0] * p.cos.size[1]);  // bytes that rope reads and writes of x
  return {.flops = norm.flops + rope.flops + pack.flops,
          .bytes_read = norm.bytes_read + rope.bytes_read - turned,
          .bytes_written = pack.bytes_written};
}

// The three ops one after another.
template <Launch<NormParams> kNorm, Launch<RopeParams> kRope, Launch<PackRowsParams> kPack>
static void pack_keys(const ExecutionContext& context, const PackKeysParams& p) {
  kNorm(context, norm_of(p));
  kRope(context, rope_of(p));
  kPack(context, pack_of(p));
}

KernelRows<PackKeysParams> pack_keys_rows() {
  static const KernelRow<PackKeysParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", pack_keys<norm_ref, rope_ref, pack_rows_ref>},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", pack_keys<norm_avx2, rope_avx2, pack_rows_avx2>},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq",
       pack_keys<norm_avx512, rope_avx512, pack_rows_avx512>},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kPackKeysCuda},
      {"cuda/sm90_fast", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kPackKeysFastCuda, false}};
  return kRows;
}

}  // namespace deepinfer
