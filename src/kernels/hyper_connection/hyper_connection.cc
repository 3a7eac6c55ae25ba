// SPDX-License-Identifier: MIT
#include "kernels/hyper_connection/hyper_connection.h"

#include <fmt/format.h>

#include "kernels/view_check.h"

namespace deepinfer {

void stream_mix_ref(const ExecutionContext& context, const StreamMixParams& params);
void stream_mix_avx2(const ExecutionContext& context, const StreamMixParams& params);
void stream_mix_avx512(const ExecutionContext& context, const StreamMixParams& params);
void stream_collapse_ref(const ExecutionContext& context, const StreamCollapseParams& params);
void stream_collapse_avx2(const ExecutionContext& context, const StreamCollapseParams& params);
void stream_collapse_avx512(const ExecutionContext& context, const StreamCollapseParams& params);
void stream_update_ref(const ExecutionContext& context, const StreamUpdateParams& params);
void stream_update_avx2(const ExecutionContext& context, const StreamUpdateParams& params);
void stream_update_avx512(const ExecutionContext& context, const StreamUpdateParams& params);
extern const Launch<StreamMixParams> kStreamMixLanesCuda, kStreamMixTensorCuda;
extern const Launch<StreamCollapseParams> kStreamCollapseCuda;
extern const Launch<StreamUpdateParams> kStreamUpdateCuda;
extern const Launch<StreamAdvanceParams> kStreamAdvanceCuda, kStreamAdvanceFastCuda;
void norm_ref(const ExecutionContext& context, const NormParams& params);
void norm_avx2(const ExecutionContext& context, const NormParams& params);
void norm_avx512(const ExecutionContext& context, const NormParams& params);

static Status check_streams(int64_t streams) {
  if (streams >= 1 && streams <= kStreamsMax) return {};
  return invalid_argument(fmt::format("x: streams is {}, expected 1..{}", streams, kStreamsMax));
}

Status check(const StreamMixParams& p) {
  const int64_t tokens = p.x.size[0], streams = p.x.size[1], hidden = p.x.size[2];
  TRY(check_streams(streams));
  TRY(check_planes("x", p.x));
  TRY(check_size("fn: out", p.fn.out, (2 + streams) * streams));
  TRY(check_size("fn: in", p.fn.in, streams * hidden));
  TRY(check_size("base: size", p.base.size, (2 + streams) * streams));
  TRY(check_size("scale: size", p.scale.size, 3));
  TRY(check_rows("pre", p.pre));
  TRY(check_rows("post", p.post));
  TRY(check_planes("comb", p.comb));
  TRY(check_shape("pre", p.pre, {tokens, streams}));
  TRY(check_shape("post", p.post, {tokens, streams}));
  if (p.iterations < 1) return invalid_argument(fmt::format("iterations is {}, expected at least 1", p.iterations));
  return check_shape("comb", p.comb, {tokens, streams, streams});
}

Status check(const StreamCollapseParams& p) {
  TRY(check_streams(p.x.size[1]));
  TRY(check_rows("x", p.x));
  TRY(check_rows("pre", p.pre));
  TRY(check_rows("out", p.out));
  TRY(check_shape("pre", p.pre, {p.x.size[0], p.x.size[1]}));
  return check_shape("out", p.out, {p.x.size[0], p.x.size[2]});
}

Status check(const StreamUpdateParams& p) {
  const int64_t tokens = p.x.size[0], streams = p.x.size[1], hidden = p.x.size[2];
  TRY(check_streams(streams));
  TRY(check_rows("x", p.x));
  TRY(check_rows("y", p.y));
  TRY(check_rows("post", p.post));
  TRY(check_planes("comb", p.comb));
  TRY(check_rows("out", p.out));
  TRY(check_shape("y", p.y, {tokens, hidden}));
  TRY(check_shape("post", p.post, {tokens, streams}));
  TRY(check_shape("comb", p.comb, {tokens, streams, streams}));
  return check_shape("out", p.out, {tokens, streams, hidden});
}

Status check(const StreamAdvanceParams& p) {
  TRY(check(p.update));
  TRY(check(collapse_of(p)));
  return check(norm_of(p));
}

// The three ops one after another.
template <Launch<StreamUpdateParams> kUpdate, Launch<StreamCollapseParams> kCollapse, Launch<NormParams> kNorm>
static void stream_advance(const ExecutionContext& context, const StreamAdvanceParams& p) {
  kUpdate(context, p.update);
  kCollapse(context, collapse_of(p));
  kNorm(context, norm_of(p));
}

Cost estimate(const StreamMixParams& p) {
  const double n = static_cast<double>(p.x.num_elements()), tokens = static_cast<double>(p.x.size[0]);
  const double out = static_cast<double>(p.fn.out), comb = static_cast<double>(p.x.size[1] * p.x.size[1]);
  return {.flops = 2 * n * (out + 1) + tokens * comb * 4 * p.iterations,
          .bytes_read = 2 * n + 4 * out * static_cast<double>(p.fn.in),
          .bytes_written = 4 * tokens * out};
}
Cost estimate(const StreamCollapseParams& p) {
  const double n = static_cast<double>(p.x.num_elements());
  return {.flops = 2 * n, .bytes_read = 2 * n, .bytes_written = 2 * static_cast<double>(p.out.num_elements())};
}
Cost estimate(const StreamUpdateParams& p) {
  const double n = static_cast<double>(p.x.num_elements());
  return {.flops = 2 * n * static_cast<double>(p.x.size[1] + 1),
          .bytes_read = 2 * n + 2 * static_cast<double>(p.y.num_elements()),
          .bytes_written = 2 * n};
}

// The collapsed streams stay where they are made.
Cost estimate(const StreamAdvanceParams& p) {
  const Cost update = estimate(p.update), collapse = estimate(collapse_of(p)), norm = estimate(norm_of(p));
  return {.flops = update.flops + collapse.flops + norm.flops,
          .bytes_read = update.bytes_read + 2 * static_cast<double>(p.norm_weight.size),
          .bytes_written = update.bytes_written + norm.bytes_written};
}

KernelRows<StreamMixParams> stream_mix_rows() {
  static const KernelRow<StreamMixParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", stream_mix_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", stream_mix_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq", stream_mix_avx512},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kStreamMixLanesCuda},
      {"cuda/sm90_tensor", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kStreamMixTensorCuda, false}};
  return kRows;
}
KernelRows<StreamCollapseParams> stream_collapse_rows() {
  static const KernelRow<StreamCollapseParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", stream_collapse_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", stream_collapse_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq", stream_collapse_avx512},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kStreamCollapseCuda}};
  return kRows;
}
KernelRows<StreamUpdateParams> stream_update_rows() {
  static const KernelRow<StreamUpdateParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine", stream_update_ref},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c", stream_update_avx2},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq", stream_update_avx512},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kStreamUpdateCuda}};
  return kRows;
}
KernelRows<StreamAdvanceParams> stream_advance_rows() {
  static const KernelRow<StreamAdvanceParams> kRows[] = {
      {"ref", Backend::kRef, CpuLevel::kRef, "any machine",
       stream_advance<stream_update_ref, stream_collapse_ref, norm_ref>},
      {"cpu/avx2", Backend::kCpu, CpuLevel::kAvx2, "avx2 fma f16c",
       stream_advance<stream_update_avx2, stream_collapse_avx2, norm_avx2>},
      {"cpu/avx512", Backend::kCpu, CpuLevel::kAvx512, "avx512 f bw vl dq",
       stream_advance<stream_update_avx512, stream_collapse_avx512, norm_avx512>},
      {"cuda/sm90", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kStreamAdvanceCuda},
      {"cuda/sm90_fast", Backend::kCuda, CpuLevel::kRef, kNeedsSm90, kStreamAdvanceFastCuda, false}};
  return kRows;
}

}  // namespace deepinfer
