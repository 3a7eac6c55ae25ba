// SPDX-License-Identifier: MIT
#include "tools/engine_target.h"

#include <string>

#include "tensor/device.h"

namespace deepinfer {

Result<Target> engine_target(const ModelOptions& options) {
  Target target;
  target.is_exact = options.numerics == "exact";
  target.level = parse_cpu_level(options.cpu).value_or(CpuLevel::kRef);
  if (target.level > machine_cpu_level())
    return unimplemented("--cpu " + options.cpu + ": this machine offers " + to_string(machine_cpu_level()) +
                         " at most");
  if (options.backend == "ascend")
    return unimplemented("--backend ascend: this program has no such kernels; use auto, cpu or cuda");
  if (options.backend != "cuda") return target;
  target.backend = Backend::kCuda;
  const auto device = open_cuda_device();
  return device.ok() ? Result<Target>(target) : device.status().prefixed("--backend cuda");
}

}  // namespace deepinfer
