// SPDX-License-Identifier: MIT
#include "kernels/rope/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "kernels/view_check.h"

namespace deepinfer {

void rope_angles_ref(const ExecutionContext& context, const RopeAnglesParams& params);
void rope_ref(const ExecutionContext& context, const RopeParams& params);
void rope_avx2(const ExecutionContext& context, const RopeParams& params);
void rope_avx512(const ExecutionContext& context, const RopeParams& params);
extern const Launch<RopeAnglesParams> kRopeAnglesCuda;
extern const Launch<RopeParams> kRopeCuda;

// The pair index at which a wavelength makes `turns` turns over the original context.
static double pair_of_turns(const RopeSpec& spec, double turns) {
  return spec.rope_dim * std::log(static_cast<double>(spec.original_context) / (turns * 2 * std::numbers::pi)) /
         (2 * std::log(spec.theta));
}

void rope_frequencies(const RopeSpec& spec, std::span<float> out) {
  CHECK(spec.rope_dim > 0 && spec.rope_dim % 2 == 0 && out.size() == static_cast<size_t>(spec.rope_dim / 2));
  for (size_t i = 0; i < out.size(); ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(spec.rope_dim);
    out[i] = 1.f / static_cast<float>(std::pow(spec.theta, static_cast<double>(exponent)));
  }
  if (spec.factor <= 1) return;
  const double last = spec.rope_dim - 1;
  const double low = std::max(std::floor(pair_of_turns(spec, spec.beta_fast)), 0.0);
  const double high = std::min(std::ceil(pair_of_turns(spec, spec.beta_slow)), last);
  const float width = static_cast<float>(low == high ? 0.001 : high - low);
  for (size_t i = 0; i < out.size(); ++i) {
    const float ramp = std::clamp((static_cast<float>(i) - static_cast<float>(low)) / width, 0.f, 1.f);
    const float smooth = 1.f - ramp;  // in this order, as the reference rounds
    out[i] = out[i] / static_cast<float>(spec.factor) * (1.f - smooth) + out[i] * smooth;
  }
}

Status check(const RopeAnglesParams& p) {
  const int64_t tokens = p.position.size[0], pairs = p.frequency.size[0];
  TRY(check_rows("cos", p.cos));
  TRY(check_rows("sin", p.sin));
  TRY(check_shape("cos", p.cos, {tokens, pairs}));
  return check_shape("sin", p.sin, {tokens, pairs});
}

Status check(const RopeParams& p) {
  TRY(check_rows("x", p.x));
  TRY(check_rows("cos", p.cos));
  TRY(check_rows("sin", p.sin));
  const int64_t pairs = p.cos.size[1];
  TRY(check_shape("cos", p.cos, {p.x.size[0], pairs}));
  TRY(check_shape("sin", p.sin, {p.x.size[0], pairs}));
  if (2 * pairs > p.x.size[2])
    return invalid_argument(fmt::format("x: head_dim is {}, expected at least {}", p.x.size[2], 2 * pairs));
  return {};
}

Cost estimate(const RopeAnglesParams& p) {
  const double n = static_cast<double>(p.cos.num_elements());
  return {.flops = 40 * n,
          .bytes_read = 4 * static_cast<double>(p.position.size[0] + p.frequency.size[0]),
          .bytes_written = 8 * n};
}
Cost estimate(const RopeParams& p) {
  const double pairs = static_cast<double>(p.x.size[0] * p.x.size[1] * p.cos.size[1]);
  return {.flops = 6 * pairs,
          .bytes_read = 4 * pairs + 8 * static_cast<double>(p.cos.num_elements()),
          .bytes_written = 4 * pairs};
}

KernelRows<RopeAnglesParams> rope_angles_rows() {
  static const KernelRow<RopeAnglesParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", rope_angles_ref},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kRopeAnglesCuda}};
  return kRows;
}
KernelRows<RopeParams> rope_rows() {
  static const KernelRow<RopeParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", rope_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", rope_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq", rope_avx512},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kRopeCuda}};
  return kRows;
}

}  // namespace deepinfer
