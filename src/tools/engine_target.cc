// SPDX-License-Identifier: MIT
#include "tools/engine_target.h"

#include <string>

namespace deepinfer {

Result<Target> engine_target(const ModelOptions& options) {
  Target target;
  target.level = parse_cpu_level(options.cpu).value_or(CpuLevel::kRef);
  if (target.level > machine_cpu_level())
    return unimplemented("--cpu " + options.cpu + ": this machine offers " + to_string(machine_cpu_level()) +
                         " at most");
  if (options.backend == "cuda") target.backend = Backend::kCuda;
  if (options.backend == "ascend") target.backend = Backend::kAscend;
  return target;
}

}  // namespace deepinfer
