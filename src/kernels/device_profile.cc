// SPDX-License-Identifier: MIT
#include "kernels/device_profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace deepinfer {
namespace {

const char* kind_of(const WeightMatrix& weight) {
  static constexpr const char* kNames[] = {"bf16", "fp8", "fp4"};  // in the variant's order
  return kNames[weight.index()];
}

// Names that tell one use of an op from another.
template <typename Params>
std::string name_of(const char* op, const Params&) {
  return op;
}
std::string name_of(const char* op, const LinearParams& p) {
  return fmt::format("{} {} {}x{}{} M={}", op, kind_of(p.weight), num_outputs(p.weight), num_inputs(p.weight),
                     p.num_groups > 1 ? fmt::format(" in {} groups", p.num_groups) : "", p.x.size[0]);
}
std::string name_of(const char* op, const ExpertsParams& p) {
  const WeightMatrix& first = p.experts[0].w1;
  return fmt::format("{} {} {} of {}x{}, {} rows", op, kind_of(first), p.experts.size(), num_outputs(first),
                     num_inputs(first), p.out.size[0]);
}
std::string name_of(const char* op, const SparseAttentionParams& p) {
  return fmt::format("{} {} tokens, {} + {} entries", op, p.q.size[0], p.window + p.block_rows,
                     p.selected.data ? p.selected.size[1] : 0);
}
std::string name_of(const char* op, const NormParams& p) { return fmt::format("{} {}", op, p.x.size[1]); }
std::string name_of(const char* op, const RopeParams& p) {
  return fmt::format("{}{} {}x{}", op, p.inverse ? " inverse" : "", p.x.size[1], p.x.size[2]);
}
std::string name_of(const char* op, const IndexScoresParams& p) {
  return fmt::format("{} {} tokens x {}{}", op, p.q.size[0], p.scores.size[1], p.candidates.data ? " candidates" : "");
}
std::string name_of(const char* op, const TopKParams& p) {
  return fmt::format("{} {} of {}", op, p.out.size[1], p.scores.data ? p.scores.size[1] : 0);
}

// estimate() of these reads tables; from sizes alone it is the most that they can do: every entry present, every expert
// used.
template <typename Params>
Cost cost_of(const Params& p) {
  return estimate(p);
}
Cost cost_of(const ExpertsParams& p) {
  const double rows = static_cast<double>(p.out.size[0]), io = 2 * static_cast<double>(p.out.num_elements());
  const ExpertMatrices& first = p.experts[0];
  const double bytes = weight_bytes(first.w1) + weight_bytes(first.w3) + weight_bytes(first.w2);
  const double used = std::min(rows, static_cast<double>(p.experts.size()));
  return {.flops = 6 * rows * static_cast<double>(num_outputs(first.w1) * num_inputs(first.w1)),
          .bytes_read = io + used * bytes,
          .bytes_written = io};
}
Cost cost_of(const SparseAttentionParams& p) {
  const double tokens = static_cast<double>(p.q.size[0]), window = static_cast<double>(p.window + p.block_rows),
               selected = p.selected.data ? static_cast<double>(p.selected.size[1]) : 0;
  const double io = 2 * static_cast<double>(p.q.num_elements());
  return {.flops = 4 * (window + selected) * io / 2,
          .bytes_read = io + tokens * (window * static_cast<double>(row_bytes(p.window_format, p.q.size[2])) +
                                       selected * static_cast<double>(row_bytes(p.global_format, p.q.size[2]))),
          .bytes_written = io};
}
Cost cost_of(const IndexScoresParams& p) {
  const double entries = static_cast<double>(p.scores.num_elements());
  return {.flops = entries * static_cast<double>(p.q.size[1] * (2 * p.q.size[2] + 3)),
          .bytes_read = static_cast<double>(p.scores.size[1] * row_bytes(RowFormat::kFp4Group32, p.q.size[2])),
          .bytes_written = 4 * entries};
}
Cost cost_of(const TopKParams& p) {
  const double scores = p.scores.data ? static_cast<double>(p.scores.num_elements()) : 0;
  return {.flops = scores, .bytes_read = 4 * scores, .bytes_written = 4 * static_cast<double>(p.out.num_elements())};
}
Cost cost_of(const CandidateBlocksParams& p) {
  const double scores = static_cast<double>(p.scores.num_elements());
  return {.flops = scores, .bytes_read = 4 * scores, .bytes_written = 4 * static_cast<double>(p.out.num_elements())};
}

template <auto kMember, typename Params>
void launch_marked(const ExecutionContext& context, const Params& params) {
  DeviceProfile& profile = *context.profile->device;
  const Kernel<Params>& kernel = profile.kernels().*kMember;
  profile.begin();
  kernel.launch(context, params);
  profile.passed(name_of(kernel.op, params), cost_of(params));
}

}  // namespace

KernelTable DeviceProfile::marked(const KernelTable& kernels) {
  KernelTable table = kernels;
#define DEEPINFER_KERNEL_MARK(member, params, rows) table.member.launch = launch_marked<&KernelTable::member, params>;
  DEEPINFER_KERNELS(DEEPINFER_KERNEL_MARK)
#undef DEEPINFER_KERNEL_MARK
  return table;
}

void DeviceProfile::begin() {
  if (!std::exchange(has_begun_, true)) marks_->put();
}

void DeviceProfile::passed(std::string name, const Cost& cost) {
  begin();
  marks_->put();
  passed_.push_back({std::move(name), cost});
}

void DeviceProfile::clear() {
  marks_->clear();
  passed_.clear();
  has_begun_ = false;
}

void DeviceProfile::read(OpProfile& profile) const {
  const std::vector<double> gaps = marks_->gaps_ns();
  for (size_t i = 0; i < std::min(gaps.size(), passed_.size()); ++i) {
    OpTime& time = profile.ops[passed_[i].name];
    ++time.calls;
    time.seconds += 1e-9 * gaps[i];
    time.cost += passed_[i].cost;
  }
}

}  // namespace deepinfer
