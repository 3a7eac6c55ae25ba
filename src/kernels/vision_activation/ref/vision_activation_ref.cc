// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <memory>

#include "kernels/lanes/exponential.h"
#include "kernels/vision_activation/vision_activation.h"

namespace deepinfer {
namespace {

constexpr int kNumCodes = 1 << 16;

struct Table {
  bf16 value[kNumCodes];
  bf16 operator()(bf16 x) const { return value[x.bits]; }
};

template <typename Function>
std::unique_ptr<const Table> make_table(const Function& function) {
  auto table = std::make_unique<Table>();
  for (int code = 0; code < kNumCodes; ++code)
    table->value[code] = to_bf16(function(to_float(bf16{static_cast<uint16_t>(code)})));
  return table;
}

const Table& silu_table() {
  static const std::unique_ptr<const Table> table = make_table(silu_in_lanes);
  return *table;
}

// The error function in double, rounded once, so that no machine's math library shows in the result.
float gelu(float x) {
  constexpr float kSqrtHalf = 0.70710678f;
  const float erf = static_cast<float>(std::erf(static_cast<double>(x * kSqrtHalf)));
  return 0.5f * x * (1.f + erf);
}

const Table& gelu_table() {
  static const std::unique_ptr<const Table> table = make_table(gelu);
  return *table;
}

constexpr int64_t kRowsPerItem = 16;

// Calls body(row) for every row, sixteen rows an item.
template <typename Body>
void for_each_row(const ExecutionContext& context, const std::array<int64_t, 2>& size, const Body& body) {
  for_each_item(context, ceil_div(size[0], kRowsPerItem), static_cast<double>(size[0] * size[1]),
                [&](int64_t item, int) {
                  for (int64_t r = item * kRowsPerItem; r < std::min((item + 1) * kRowsPerItem, size[0]); ++r) body(r);
                });
}

}  // namespace

const bf16* gelu_values() { return gelu_table().value; }

void gated_silu_ref(const ExecutionContext& context, const GatedSiluParams& p) {
  const Table& silu = silu_table();
  for_each_row(context, p.out.size, [&](int64_t r) {
    const bf16* gate = p.gate.row(r);
    const bf16* up = p.up.row(r);
    bf16* out = p.out.row(r);
    for (int64_t i = 0; i < p.out.size[1]; ++i) out[i] = to_bf16(to_float(silu(gate[i])) * to_float(up[i]));
  });
}

void gelu_ref(const ExecutionContext& context, const GeluParams& p) {
  const Table& table = gelu_table();
  for_each_row(context, p.x.size, [&](int64_t r) {
    bf16* x = p.x.row(r);
    for (int64_t i = 0; i < p.x.size[1]; ++i) x[i] = table(x[i]);
  });
}

void residual_ref(const ExecutionContext& context, const ResidualParams& p) {
  for_each_row(context, p.x.size, [&](int64_t r) {
    bf16* x = p.x.row(r);
    const bf16* y = p.y.row(r);
    for (int64_t i = 0; i < p.x.size[1]; ++i) x[i] = to_bf16(to_float(x[i]) + to_float(y[i]));
  });
}

}  // namespace deepinfer
