// SPDX-License-Identifier: MIT
// What a model needs on a machine and whether it may start there. Weights are mapped, so a model that is larger than
// memory would still "run", at the speed of the disk: such a start is refused, with the plan, unless it was asked for
// (ExpertMemory). Engram tables may always stay on disk, for a token reads a few rows of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/config.h"
#include "model/model_size.h"

namespace deepinfer {

struct MachineMemory {
  int64_t total_bytes = 0;      // of the machine, or of the control group where that is less
  int64_t available_bytes = 0;  // without swapping, now; file pages count as available
};
Result<MachineMemory> read_machine_memory();
// Where the limits of a process's control group and of those above it stand, in versions 2 and 1, from the text of
// /proc/self/cgroup. Files that do not exist are among them (a container sees its own group as the root).
std::vector<std::string> memory_limit_files(std::string_view groups);

// How much memory the routed experts may take. Less than all of them: the others are read from the checkpoint's files
// when a token needs them (expert_residency.h).
struct ExpertMemory {
  enum class Kind { kAll, kFree, kBytes };  // kFree: what the machine has left beside everything else
  Kind kind = Kind::kAll;
  int64_t bytes = 0;  // of kBytes
};
// "all", "free", or a number of GB (10^9 bytes). Errors: invalid_argument.
Result<ExpertMemory> parse_expert_memory(std::string_view text);

// What the engine will allocate beside the weights.
struct MemoryRequest {
  int64_t lanes = 1;      // running sequences
  int64_t positions = 0;  // tokens of global KV, over all sequences; rounded up to blocks of 128
  int64_t workspace_bytes = 0;
  ExpertMemory experts;
};

struct MemoryItem {
  std::string name;
  int64_t bytes = 0;
  bool resident = true;  // false: may stay on disk
};

struct MemoryPlan {
  std::vector<MemoryItem> items;
  MachineMemory machine;
  int64_t resident_bytes = 0;  // what must be in memory
  int64_t disk_bytes = 0;      // what may stay on disk
  int64_t lane_bytes = 0;      // one sequence's rings and tails, at their true (rounded) sizes
  int64_t expert_bytes = 0;    // budget of the routed experts; 0 = they are all in memory

  bool fits() const { return resident_bytes <= machine.available_bytes; }
  bool fits_whole() const { return resident_bytes + disk_bytes <= machine.available_bytes; }
  // Tokens of global KV that the memory left by everything else could hold.
  int64_t positions_left(const ModelConfig& config) const;
  std::string to_text() const;  // a table, one item a line
};

// Errors: unimplemented for a compress ratio that blocks cannot hold.
Result<MemoryPlan> plan_memory(const ModelConfig& config, const ModelSize& size, const MemoryRequest& request,
                               const MachineMemory& machine);

// ok when the plan fits; resource_exhausted with the plan as text otherwise.
Status check_fits(const MemoryPlan& plan);

// All of the above for an engine about to start. Leaves the budget of the routed experts: MemoryPlan::expert_bytes.
Result<int64_t> check_model_fits(const ModelConfig& config, const MemoryRequest& request);

// "1.32 GB", decimal units as disks and the specification use them.
std::string bytes_to_string(int64_t bytes);

}  // namespace deepinfer
