// SPDX-License-Identifier: MIT
// Stands in where the build has no device: cuda/engram_hash_cuda.cu has the launch.
#include "model/engram_hash.h"

namespace deepinfer {

extern const EngramHashLaunch kEngramHashCuda = nullptr;

}  // namespace deepinfer
