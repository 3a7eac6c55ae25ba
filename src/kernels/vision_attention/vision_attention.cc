// SPDX-License-Identifier: MIT
#include "kernels/vision_attention/vision_attention.h"

#include <fmt/format.h>

#include "kernels/view_check.h"

namespace deepinfer {

void vision_attention_ref(const ExecutionContext& context, const VisionAttentionParams& params);
void vision_attention_avx2(const ExecutionContext& context, const VisionAttentionParams& params);
void vision_attention_avx512(const ExecutionContext& context, const VisionAttentionParams& params);
extern const Launch<VisionAttentionParams> kVisionAttentionCuda;
extern const Launch<VisionAttentionParams> kVisionAttentionTensorCuda;

Status check(const VisionAttentionParams& p) {
  TRY(check_planes("q", p.q));
  TRY(check_planes("k", p.k));
  TRY(check_planes("v", p.v));
  TRY(check_planes("out", p.out));
  TRY(check_shape("k", p.k, p.q.size));
  TRY(check_shape("v", p.v, p.q.size));
  TRY(check_shape("out", p.out, p.q.size));
  int64_t end = 0;
  for (const Range& image : p.images) {
    if (image.begin < end || image.end < image.begin || image.end > p.q.size[0])
      return invalid_argument(
          fmt::format("images: range [{}, {}) after {} in {} tokens", image.begin, image.end, end, p.q.size[0]));
    end = image.end;
  }
  return {};
}

Cost estimate(const VisionAttentionParams& p) {
  Cost cost;
  const double width = static_cast<double>(p.q.size[1] * p.q.size[2]);
  for (const Range& image : p.images) {
    const double n = static_cast<double>(image.size());
    cost.flops += 4 * n * n * width;
    cost.bytes_read += 6 * n * width;
    cost.bytes_written += 2 * n * width;
  }
  return cost;
}

KernelRows<VisionAttentionParams> vision_attention_rows() {
  static const KernelRow<VisionAttentionParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", vision_attention_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "AVX2, FMA", vision_attention_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "AVX-512", vision_attention_avx512},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kVisionAttentionCuda},
      {"cuda/sm90_tensor", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kVisionAttentionTensorCuda, false}};
  return kRows;
}

}  // namespace deepinfer
