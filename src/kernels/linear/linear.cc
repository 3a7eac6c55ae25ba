// SPDX-License-Identifier: MIT
#include "kernels/linear/linear.h"

#include <fmt/format.h>

#include "kernels/view_check.h"

namespace deepinfer {

void linear_ref(const ExecutionContext& context, const LinearParams& params);
void linear_avx2(const ExecutionContext& context, const LinearParams& params);
void linear_avx512(const ExecutionContext& context, const LinearParams& params);
void linear_bf16(const ExecutionContext& context, const LinearParams& params);
extern const Launch<LinearParams> kLinearCuda;
extern const Launch<LinearParams> kLinearTensorCuda;

int64_t num_outputs(const WeightMatrix& weight) {
  return std::visit([](const auto& m) { return m.out; }, weight);
}
int64_t num_inputs(const WeightMatrix& weight) {
  return std::visit([](const auto& m) { return m.in; }, weight);
}

static double num_bytes(const Bf16Matrix& m) { return 2.0 * static_cast<double>(m.out * m.in); }
static double num_bytes(const Fp8Matrix& m) {
  return static_cast<double>(m.out * m.in + num_scale_blocks(m.out) * m.scale_columns());
}
static double num_bytes(const Fp4Matrix& m) { return static_cast<double>(m.out * (m.row_bytes() + m.scale_columns())); }
double weight_bytes(const WeightMatrix& weight) {
  return std::visit([](const auto& m) { return num_bytes(m); }, weight);
}

WeightLayout layout_of(const WeightMatrix& weight) {
  if (const auto* fp8 = std::get_if<Fp8Matrix>(&weight)) return fp8->layout;
  if (const auto* fp4 = std::get_if<Fp4Matrix>(&weight)) return fp4->layout;
  return WeightLayout::kRows;
}

Status check(const LinearParams& p) {
  const int64_t out = num_outputs(p.weight), in = num_inputs(p.weight), rows = p.x.size[0];
  if (std::visit([](const auto& m) { return m.empty(); }, p.weight)) return invalid_argument("weight: is empty");
  if (p.num_groups < 1 || out % p.num_groups != 0)
    return invalid_argument(fmt::format("num_groups is {}, expected a divisor of out = {}", p.num_groups, out));
  if (layout_of(p.weight) == WeightLayout::kPlanes && !can_have_planes(out / p.num_groups, in))
    return invalid_argument(fmt::format("weight: {} x {} in planes, expected multiples of 32", out / p.num_groups, in));
  if (p.num_groups > 1 && std::holds_alternative<Fp8Matrix>(p.weight) && out / p.num_groups % kScaleBlock != 0)
    return invalid_argument(fmt::format("weight: {} rows per group, expected a multiple of 32", out / p.num_groups));
  TRY(check_rows("x", p.x));
  TRY(check_shape("x", p.x, {rows, in * p.num_groups}));
  if (p.round_activation && in % kScaleBlock != 0)
    return invalid_argument(fmt::format("x: in is {}, expected a multiple of 32", in));
  if ((p.out.data != nullptr) == (p.out_f32.data != nullptr) && rows > 0)
    return invalid_argument("out, out_f32: exactly one has data");
  if (p.add && !p.out_f32.data) return invalid_argument("add: needs out_f32");
  if (!p.bias.empty()) TRY(check_size("bias", p.bias.size, out));
  if (p.out.data) {
    TRY(check_rows("out", p.out));
    return check_shape("out", p.out, {rows, out});
  }
  TRY(check_rows("out_f32", p.out_f32));
  return check_shape("out_f32", p.out_f32, {rows, out});
}

Cost estimate(const LinearParams& p) {
  const double rows = static_cast<double>(p.x.size[0]), out = static_cast<double>(num_outputs(p.weight));
  const double in = static_cast<double>(num_inputs(p.weight)), element = p.out_f32.data ? 4 : 2;
  return {.flops = 2 * rows * out * in,
          .bytes_read = weight_bytes(p.weight) + 2 * rows * in * p.num_groups + (p.add ? element * rows * out : 0),
          .bytes_written = element * rows * out};
}

KernelRows<LinearParams> linear_rows() {
  static const KernelRow<LinearParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", linear_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", linear_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq", linear_avx512},
      {"cpu/bf16", Backend::kCpu, CpuLevel::kBf16, "avx512 vnni vbmi bf16", linear_bf16},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kLinearCuda},
      {"cuda/sm90_tensor", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kLinearTensorCuda, false}};
  return kRows;
}

}  // namespace deepinfer
