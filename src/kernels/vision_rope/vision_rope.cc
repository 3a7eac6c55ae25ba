// SPDX-License-Identifier: MIT
#include "kernels/vision_rope/vision_rope.h"

#include <cmath>
#include <vector>

#include "kernels/view_check.h"

namespace deepinfer {

void vision_rope_ref(const ExecutionContext& context, const VisionRopeParams& params);
extern const Launch<VisionRopeParams> kVisionRopeCuda;

Status check(const VisionRopeParams& p) {
  TRY(check_planes("x", p.x));
  TRY(check_rows("cos", p.cos));
  TRY(check_rows("sin", p.sin));
  if (p.x.size[2] % 2 != 0)
    return invalid_argument("x: head_dim is " + std::to_string(p.x.size[2]) + ", expected an even number");
  TRY(check_shape("cos", p.cos, {p.x.size[0], p.x.size[2] / 2}));
  return check_shape("sin", p.sin, {p.x.size[0], p.x.size[2] / 2});
}

Cost estimate(const VisionRopeParams& p) {
  const double n = static_cast<double>(p.x.num_elements());
  return {.flops = 3 * n, .bytes_read = 2 * n + 8 * static_cast<double>(p.cos.num_elements()), .bytes_written = 2 * n};
}

KernelRows<VisionRopeParams> vision_rope_rows() {
  static const KernelRow<VisionRopeParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", vision_rope_ref},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kVisionRopeCuda}};
  return kRows;
}

void vision_rope_angles(int64_t rows, int64_t columns, double theta, View<float, dim::tokens, dim::rope_pairs> cos,
                        View<float, dim::tokens, dim::rope_pairs> sin) {
  const int64_t pairs = cos.size[1], half = pairs / 2;
  CHECK(pairs % 2 == 0 && cos.size[0] == rows * columns && sin.size == cos.size);
  for (int64_t j = 0; j < half; ++j) {
    const float exponent = static_cast<float>(2 * j) / static_cast<float>(pairs);
    const float frequency = 1.f / static_cast<float>(std::pow(theta, static_cast<double>(exponent)));
    for (int64_t t = 0; t < rows * columns; ++t) {
      const double by_row = static_cast<double>(static_cast<float>(t / columns) * frequency);
      const double by_column = static_cast<double>(static_cast<float>(t % columns) * frequency);
      cos(t, j) = static_cast<float>(std::cos(by_row));
      sin(t, j) = static_cast<float>(std::sin(by_row));
      cos(t, half + j) = static_cast<float>(std::cos(by_column));
      sin(t, half + j) = static_cast<float>(std::sin(by_column));
    }
  }
}

}  // namespace deepinfer
