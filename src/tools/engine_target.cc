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
  if (options.backend != "auto" && options.backend != "cpu")
    return unimplemented("--backend " + options.backend + ": this program has no such kernels; use auto or cpu");
  return target;
}

}  // namespace deepinfer
