// SPDX-License-Identifier: MIT
#include "kernels/compressor/compressor.h"

#include <fmt/format.h>

#include "kernels/view_check.h"

namespace deepinfer {

void compressor_pool_ref(const ExecutionContext& context, const CompressorPoolParams& params);
void compressor_tail_ref(const ExecutionContext& context, const CompressorTailParams& params);
extern const Launch<CompressorPoolParams> kCompressorPoolCuda;
extern const Launch<CompressorTailParams> kCompressorTailCuda;

Status check(const CompressorPoolParams& p) {
  const int64_t groups = p.lane.size[0], head_dim = p.kv.size[1];
  if (p.ratio < 2 || p.ratio > kCompressRatioMax)
    return invalid_argument(fmt::format("ratio is {}, expected 2..{}", p.ratio, kCompressRatioMax));
  TRY(check_rows("kv", p.kv));
  TRY(check_rows("gate", p.gate));
  TRY(check_rows("tail", p.tail));
  TRY(check_rows("out", p.out));
  TRY(check_shape("gate", p.gate, p.kv.size));
  TRY(check_size("tail: columns", p.tail.size[2], 2 * head_dim));
  TRY(check_shape("last_row", p.last_row, {groups}));
  TRY(check_shape("last_position", p.last_position, {groups}));
  TRY(check_shape("num_rows", p.num_rows, {groups}));
  return check_shape("out", p.out, {groups, head_dim});
}

Status check(const CompressorTailParams& p) {
  TRY(check_rows("kv", p.kv));
  TRY(check_rows("gate", p.gate));
  TRY(check_rows("tail", p.tail));
  TRY(check_shape("gate", p.gate, p.kv.size));
  TRY(check_size("tail: columns", p.tail.size[2], 2 * p.kv.size[1]));
  TRY(check_shape("lane", p.lane, {p.kv.size[0]}));
  return check_shape("position", p.position, {p.kv.size[0]});
}

Cost estimate(const CompressorPoolParams& p) {
  const double n = static_cast<double>(p.out.num_elements()) * p.ratio;
  return {.flops = 24 * n, .bytes_read = 8 * n, .bytes_written = 2 * static_cast<double>(p.out.num_elements())};
}
Cost estimate(const CompressorTailParams& p) {
  const double bytes = 8 * static_cast<double>(p.kv.num_elements());
  return {.bytes_read = bytes, .bytes_written = bytes};
}

KernelRows<CompressorPoolParams> compressor_pool_rows() {
  static const KernelRow<CompressorPoolParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", compressor_pool_ref},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kCompressorPoolCuda}};
  return kRows;
}
KernelRows<CompressorTailParams> compressor_tail_rows() {
  static const KernelRow<CompressorTailParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", compressor_tail_ref},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kCompressorTailCuda}};
  return kRows;
}

}  // namespace deepinfer
