// SPDX-License-Identifier: MIT
// Where the files of a checkpoint come from: a folder, or memory (the model compiled into the program).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace deepinfer {

class CheckpointFiles {
 public:
  virtual ~CheckpointFiles() = default;
  virtual bool contains(const std::string& name) const = 0;
  // Whole content of a small file. Errors: not_found, resource_exhausted beyond `bytes_max`, invalid_argument for what
  // is no regular file.
  virtual Result<std::string> text(const std::string& name, size_t bytes_max) const = 0;
  // Content that stays valid, and in place, as long as this object lives. A folder's file is mapped, not read.
  virtual Result<std::span<const uint8_t>> map(const std::string& name) = 0;
  // For messages: "/models/flash/config.json".
  virtual std::string path(const std::string& name) const = 0;
};

// Errors: not_found when there is no such folder. Files may be links; loops of links are errors where they are met.
Result<std::unique_ptr<CheckpointFiles>> open_folder(const std::string& folder);

struct MemoryFile {
  std::string_view name;
  std::span<const uint8_t> bytes;  // borrowed; 64-byte aligned where tensors should not be copied
};
// `label` stands for the folder in messages ("mini").
std::unique_ptr<CheckpointFiles> files_in_memory(std::string label, std::vector<MemoryFile> files);

}  // namespace deepinfer
