// SPDX-License-Identifier: MIT
#include <cstring>

#include "kernels/compressor/compressor.h"
#include "kernels/lanes/exponential.h"

namespace deepinfer {
namespace {

struct GroupRows {
  const float* kv[kCompressRatioMax];
  const float* gate[kCompressRatioMax];
};

GroupRows find_rows(const CompressorPoolParams& p, int64_t group) {
  GroupRows rows;
  const int64_t head_dim = p.kv.size[1], num_rows = p.num_rows(group);
  DCHECK(num_rows >= 1 && num_rows <= p.ratio);
  for (int i = 0; i < p.ratio; ++i) {
    const int64_t age = p.ratio - 1 - i;  // tokens before the group's last
    if (age < num_rows) {
      rows.kv[i] = p.kv.row(p.last_row(group) - age);
      rows.gate[i] = p.gate.row(p.last_row(group) - age);
    } else {
      const int64_t position = p.last_position(group) - age;
      rows.kv[i] = &p.tail(p.lane(group), position % p.tail.size[1], 0);
      rows.gate[i] = rows.kv[i] + head_dim;
    }
  }
  return rows;
}

float pool(const GroupRows& rows, int ratio, int64_t channel) {
  float highest = rows.gate[0][channel], sum = 0, weight[kCompressRatioMax];
  for (int i = 1; i < ratio; ++i) highest = rows.gate[i][channel] > highest ? rows.gate[i][channel] : highest;
  for (int i = 0; i < ratio; ++i) sum += weight[i] = exp_in_lanes(rows.gate[i][channel] - highest);
  float pooled = 0;
  for (int i = 0; i < ratio; ++i) pooled += weight[i] / sum * rows.kv[i][channel];
  return pooled;
}

}  // namespace

void compressor_pool_ref(const ExecutionContext&, const CompressorPoolParams& p) {
  for (int64_t g = 0; g < p.out.size[0]; ++g) {
    const GroupRows rows = find_rows(p, g);
    for (int64_t d = 0; d < p.out.size[1]; ++d) p.out(g, d) = to_bf16(pool(rows, p.ratio, d));
  }
}

void compressor_tail_ref(const ExecutionContext&, const CompressorTailParams& p) {
  const size_t bytes = static_cast<size_t>(p.kv.size[1]) * sizeof(float);
  for (int64_t t = 0; t < p.kv.size[0]; ++t) {
    if (p.position(t) < 0) continue;
    float* slot = &p.tail(p.lane(t), p.position(t) % p.tail.size[1], 0);
    std::memcpy(slot, p.kv.row(t), bytes);
    std::memcpy(slot + p.kv.size[1], p.gate.row(t), bytes);
  }
}

}  // namespace deepinfer
