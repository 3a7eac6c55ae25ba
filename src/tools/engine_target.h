// SPDX-License-Identifier: MIT
// `--backend` and `--cpu` as the target that kernels are resolved for.
#pragma once

#include "base/status.h"
#include "kernels/op.h"
#include "tools/model_options.h"

namespace deepinfer {

// Errors: unimplemented for a CPU level this machine does not have.
Result<Target> engine_target(const ModelOptions& options);

}  // namespace deepinfer
