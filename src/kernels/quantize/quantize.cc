// SPDX-License-Identifier: MIT
#include "kernels/quantize/quantize.h"

#include <fmt/format.h>

#include "kernels/view_check.h"

namespace deepinfer {

void pack_rows_ref(const ExecutionContext& context, const PackRowsParams& params);
void pack_rows_avx2(const ExecutionContext& context, const PackRowsParams& params);
void pack_rows_avx512(const ExecutionContext& context, const PackRowsParams& params);
void unpack_rows_ref(const ExecutionContext& context, const UnpackRowsParams& params);
void unpack_rows_avx2(const ExecutionContext& context, const UnpackRowsParams& params);
void unpack_rows_avx512(const ExecutionContext& context, const UnpackRowsParams& params);
void round_rows_ref(const ExecutionContext& context, const RoundRowsParams& params);
void round_rows_avx2(const ExecutionContext& context, const RoundRowsParams& params);
void round_rows_avx512(const ExecutionContext& context, const RoundRowsParams& params);
extern const Launch<PackRowsParams> kPackRowsCuda;
extern const Launch<UnpackRowsParams> kUnpackRowsCuda;
extern const Launch<RoundRowsParams> kRoundRowsCuda;

const char* to_string(RowFormat format) {
  constexpr const char* kNames[] = {"fp8_block32", "fp4_group16", "fp4_group32", "bf16"};
  return kNames[static_cast<int>(format)];
}

int64_t row_group(RowFormat format) {
  constexpr int64_t kGroups[] = {32, 16, 32, 1};
  return kGroups[static_cast<int>(format)];
}

int64_t row_bytes(RowFormat format, int64_t num_columns) {
  if (format == RowFormat::kBf16) return 2 * num_columns;
  const int64_t codes = format == RowFormat::kFp8Block32 ? num_columns : num_columns / 2;
  return codes + num_columns / row_group(format);
}

static Status check_columns(RowFormat format, int64_t columns) {
  if (columns % row_group(format) == 0) return {};
  return invalid_argument(
      fmt::format("x: columns is {}, expected a multiple of {} ({})", columns, row_group(format), to_string(format)));
}

Status check(const PackRowsParams& p) {
  TRY(check_rows("x", p.x));
  TRY(check_columns(p.format, p.x.size[1]));
  if (p.x.size[0] > 0 && !p.base) return invalid_argument("base: is null");
  if (p.offset_bytes.data) return check_shape("offset_bytes", p.offset_bytes, {p.x.size[0]});
  if (p.x.size[0] > 1 && p.stride_bytes < row_bytes(p.format, p.x.size[1]))
    return invalid_argument(
        fmt::format("stride_bytes is {}, expected at least {}", p.stride_bytes, row_bytes(p.format, p.x.size[1])));
  return {};
}

Status check(const UnpackRowsParams& p) {
  TRY(check_rows("packed", p.packed));
  TRY(check_rows("out", p.out));
  TRY(check_columns(p.format, p.out.size[1]));
  return check_shape("packed", p.packed, {p.out.size[0], row_bytes(p.format, p.out.size[1])});
}

Status check(const RoundRowsParams& p) {
  TRY(check_rows("x", p.x));
  TRY(check_rows("out", p.out));
  TRY(check_columns(p.format, p.x.size[1]));
  return check_shape("out", p.out, p.x.size);
}

Cost estimate(const PackRowsParams& p) {
  const double n = static_cast<double>(p.x.num_elements());
  return {.flops = 3 * n,
          .bytes_read = 2 * n,
          .bytes_written = static_cast<double>(p.x.size[0] * row_bytes(p.format, p.x.size[1]))};
}
Cost estimate(const UnpackRowsParams& p) {
  const double n = static_cast<double>(p.out.num_elements());
  return {.flops = n, .bytes_read = static_cast<double>(p.packed.num_elements()), .bytes_written = 2 * n};
}
Cost estimate(const RoundRowsParams& p) {
  const double n = static_cast<double>(p.x.num_elements());
  return {.flops = 4 * n, .bytes_read = 2 * n, .bytes_written = 2 * n};
}

KernelRows<PackRowsParams> pack_rows_rows() {
  static const KernelRow<PackRowsParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", pack_rows_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", pack_rows_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq", pack_rows_avx512},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kPackRowsCuda}};
  return kRows;
}
KernelRows<UnpackRowsParams> unpack_rows_rows() {
  static const KernelRow<UnpackRowsParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", unpack_rows_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", unpack_rows_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq", unpack_rows_avx512},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kUnpackRowsCuda}};
  return kRows;
}
KernelRows<RoundRowsParams> round_rows_rows() {
  static const KernelRow<RoundRowsParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", round_rows_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", round_rows_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq", round_rows_avx512},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kRoundRowsCuda}};
  return kRows;
}

}  // namespace deepinfer
