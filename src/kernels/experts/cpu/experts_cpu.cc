// SPDX-License-Identifier: MIT
// The CPU rows of the expert ops: one expert after the other, each linear cut into its own tiles.
#include <cstring>

#include "kernels/experts/cpu/experts_kernels.h"
#include "kernels/experts/experts.h"

namespace deepinfer {

void linear_avx2(const ExecutionContext& context, const LinearParams& params);
void linear_avx512(const ExecutionContext& context, const LinearParams& params);

namespace {

struct Level {
  void (*linear)(const ExecutionContext& context, const LinearParams& params);
  const ExpertKernels& kernels;
};

const uint16_t* words(const bf16* p) { return reinterpret_cast<const uint16_t*>(p); }
uint16_t* words(bf16* p) { return reinterpret_cast<uint16_t*>(p); }

View<const bf16, dim::rows, dim::in> gather(const ExecutionContext& context, const ExpertsParams& p, int64_t begin,
                                            int64_t end) {
  const int64_t hidden = p.x.size[1];
  if (!p.token.data) return {p.x.row(begin), {end - begin, hidden}, {p.x.stride[0], 1}};
  if (end - begin == 1) return {p.x.row(p.token(begin)), {1, hidden}};
  bf16* x = context.scratch->take<bf16>((end - begin) * hidden);
  for (int64_t a = begin; a < end; ++a)
    std::memcpy(x + (a - begin) * hidden, p.x.row(p.token(a)), static_cast<size_t>(hidden) * sizeof(bf16));
  return {x, {end - begin, hidden}};
}

void run_expert(const ExecutionContext& context, const ExpertsParams& p, const Level& level, const ExpertMatrices& m,
                int64_t begin, int64_t end) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t rows = end - begin, inner = num_outputs(m.w1);
  const View<const bf16, dim::rows, dim::in> x = gather(context, p, begin, end);
  const View<bf16, dim::rows, dim::out> gate(context.scratch->take<bf16>(rows * inner), {rows, inner}),
      up(context.scratch->take<bf16>(rows * inner), {rows, inner});
  level.linear(context, {.x = x, .weight = m.w1, .round_activation = true, .out = gate});
  level.linear(context, {.x = x, .weight = m.w3, .round_activation = true, .out = up});
  for_each_item(context, rows, 32 * static_cast<double>(rows * inner), [&](int64_t r, int) {
    level.kernels.swiglu(words(gate.row(r)), words(up.row(r)), p.swiglu_limit,
                         p.weight.data ? &p.weight(begin + r) : nullptr, inner);
  });
  level.linear(context, {.x = {gate.data, {rows, inner}},
                         .weight = m.w2,
                         .round_activation = true,
                         .out = {p.out.row(begin), {rows, p.out.size[1]}, p.out.stride}});
}

void experts(const ExecutionContext& context, const ExpertsParams& p, const Level& level) {
  for (size_t e = 0; e < p.experts.size(); ++e)
    if (p.begin(e) < p.begin(e + 1)) run_expert(context, p, level, p.experts[e], p.begin(e), p.begin(e + 1));
}

void expert_combine(const ExecutionContext& context, const ExpertCombineParams& p, const ExpertKernels& kernels) {
  const Scratch::Frame frame(*context.scratch);
  const int64_t choices = p.assignment.size[1], num_rows = choices + (p.shared.data ? 1 : 0);
  const uint16_t** rows = context.scratch->take<const uint16_t*>(context.num_threads() * num_rows);
  for_each_item(context, p.out.size[0], static_cast<double>(p.out.num_elements() * num_rows),
                [&](int64_t t, int worker) {
                  const uint16_t** list = rows + worker * num_rows;
                  for (int64_t c = 0; c < choices; ++c) list[c] = words(p.y.row(p.assignment(t, c)));
                  if (p.shared.data) list[choices] = words(p.shared.row(t));
                  kernels.sum_rows(list, num_rows, p.out.size[1], words(p.out.row(t)));
                });
}

}  // namespace

void experts_avx2(const ExecutionContext& c, const ExpertsParams& p) {
  experts(c, p, {linear_avx2, experts_kernels_avx2()});
}
void experts_avx512(const ExecutionContext& c, const ExpertsParams& p) {
  experts(c, p, {linear_avx512, experts_kernels_avx512()});
}
void expert_combine_avx2(const ExecutionContext& c, const ExpertCombineParams& p) {
  expert_combine(c, p, experts_kernels_avx2());
}
void expert_combine_avx512(const ExecutionContext& c, const ExpertCombineParams& p) {
  expert_combine(c, p, experts_kernels_avx512());
}

}  // namespace deepinfer
