// SPDX-License-Identifier: MIT
#include "tools/version.h"

#include <fmt/format.h>

#include "deepinfer_version.h"
#include "tensor/cpu_features.h"

namespace deepinfer {

std::string version_text() {
  return fmt::format("deepinfer {} ({})\nbackends: {}\ncpu: {}\n", DEEPINFER_VERSION, DEEPINFER_COMMIT,
                     DEEPINFER_BACKENDS, describe_cpu());
}

}  // namespace deepinfer
