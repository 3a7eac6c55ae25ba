// SPDX-License-Identifier: MIT
#include "model/engram_hash.h"

#include <algorithm>
#include <vector>

namespace deepinfer {
namespace {

template <typename T>
Buffer<T> on_device(Device& device, const std::vector<T>& values) {
  Buffer<T> staged(device.staging(), static_cast<int64_t>(values.size())), made(device.memory(), staged.size());
  if (!staged.data() || !made.data()) return {};
  std::ranges::copy(values, staged.data());
  device.copy(made.data(), staged.data(), staged.size_bytes());
  static_cast<void>(device.wait());  // a fault sticks: the owner asks for it
  return made;
}

}  // namespace

DeviceHasher::DeviceHasher(Device& device, const EngramHasher& hasher, TokenId pad_token_id, int64_t table_stride) {
  const HashPlan& plan = hasher.plan();
  std::vector<int64_t> multipliers, primes, offsets;
  for (const HashLayer& layer : plan.layers) {
    multipliers.insert(multipliers.end(), layer.multipliers.begin(), layer.multipliers.end());
    primes.insert(primes.end(), layer.primes.begin(), layer.primes.end());
    offsets.insert(offsets.end(), layer.offsets.begin(), layer.offsets.end());
  }
  const std::vector<int32_t> classes(hasher.token_map().class_of.begin(), hasher.token_map().class_of.end());
  classes_ = on_device(device, classes);
  multipliers_ = on_device(device, multipliers);
  primes_ = on_device(device, primes);
  offsets_ = on_device(device, offsets);
  plan_ = {.classes = classes_.data(),
           .multipliers = multipliers_.data(),
           .primes = primes_.data(),
           .offsets = offsets_.data(),
           .num_ids = classes_.size(),
           .num_tables = hasher.num_tables(),
           .look_back = hasher.look_back(),
           .rows_per_token = hasher.rows_per_token(),
           .pad_class = classes[static_cast<size_t>(pad_token_id)],
           .num_heads = plan.num_heads,
           .table_stride = table_stride};
}

void DeviceHasher::run(Device& device, const TokenId* tokens, int64_t num_rows, int64_t* out) const {
  if (num_rows == 0) return;
  EngramHashRun run = plan_;
  run.tokens = tokens;
  run.num_rows = num_rows;
  run.out = out;
  kEngramHashCuda(device.stream(), run);
  device.launched("engram_hash");
}

}  // namespace deepinfer
