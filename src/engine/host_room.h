// SPDX-License-Identifier: MIT
// Whether the machine has room for the host-memory tier, asked before its bytes are touched one by one. Any thread.
#pragma once

#include <cstdint>

#include "base/status.h"
#include "engine/engine.h"

namespace deepinfer {

// Errors: resource_exhausted when so many blocks are more than the machine has available.
Status check_host_room(const Engine& engine, int64_t num_blocks);

}  // namespace deepinfer
