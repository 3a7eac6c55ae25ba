// SPDX-License-Identifier: MIT
// `--backend` and `--cpu` as the target that kernels are resolved for.
#pragma once

#include "base/status.h"
#include "kernels/op.h"
#include "tools/model_options.h"

namespace deepinfer {

// auto is the CPU: a GPU is asked for by name. Errors: unimplemented for a CPU level this machine does not have;
// unavailable, with what is missing, for a device that cannot be used.
Result<Target> engine_target(const ModelOptions& options);

}  // namespace deepinfer
