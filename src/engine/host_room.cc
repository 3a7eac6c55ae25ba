// SPDX-License-Identifier: MIT
#include "engine/host_room.h"

#include <algorithm>
#include <string>

#include "model/memory_plan.h"

namespace deepinfer {

Status check_host_room(const Engine& engine, int64_t num_blocks) {
  if (num_blocks == 0) return {};
  ASSIGN_OR_RETURN(const MachineMemory memory, read_machine_memory());
  const int64_t block_bytes = std::max<int64_t>(engine.cache_layout().block_bytes, 1);
  if (num_blocks <= memory.available_bytes / block_bytes) return {};
  return resource_exhausted("host memory: " + std::to_string(num_blocks * kBlockTokens) + " tokens of KV need " +
                            std::to_string(num_blocks / 1024 * block_bytes / 1024) + " MiB, " +
                            std::to_string(memory.available_bytes >> 20) + " MiB are available");
}

}  // namespace deepinfer
