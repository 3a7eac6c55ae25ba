// SPDX-License-Identifier: MIT
// What `deepinfer inspect` found, and its two forms: a text for people, JSON with the keys of the command line's
// contract.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "model/memory_plan.h"

namespace deepinfer {

struct InspectReport {
  std::string folder;
  ModelConfig config;
  ModelSize size;
  MemoryPlan plan;
  int64_t num_tensors = 0, num_shards = 0;
  uint64_t bytes = 0;
  uint64_t verified_bytes = 0;        // 0: not asked for
  Json card;                          // null: none
  std::vector<std::string> problems;  // each makes the checkpoint unusable
  std::vector<std::string> notes;     // worth knowing, harmless
};

Json report_json(const InspectReport& report);
std::string report_text(const InspectReport& report);

}  // namespace deepinfer
