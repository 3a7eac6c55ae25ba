// SPDX-License-Identifier: MIT
// A checkpoint folder, opened: config.json (or inference/config.json), model.safetensors.index.json and the shards it
// names, mapped read-only. A folder without an index but with one model.safetensors is read as a single shard. Opening
// reads the configuration, the index and every shard's header; tensor data stays on disk until somebody touches it.
//
// Shard names come from outside: they must be plain file names inside the folder. A shard may itself be a symbolic link
// (hub caches link to blobs elsewhere); the folder's own path may contain links too. Link loops, names with a path,
// missing or truncated files are errors that name the file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "model/checkpoint_files.h"
#include "model/config.h"
#include "tensor/safetensors.h"

namespace deepinfer {

struct ShardIndex {
  std::vector<std::string> files;                              // in order of first appearance
  std::vector<std::pair<std::string, uint32_t>> tensor_files;  // tensor name, index into `files`
  uint64_t total_bytes = 0;                                    // metadata.total_size; 0 when absent
};

// model.safetensors.index.json. Errors: invalid_argument (not the format, a path that leaves the folder), duplicate
// names.
Result<ShardIndex> parse_shard_index(std::string_view json_text);

// Where a tensor lies.
struct StoredTensor {
  TensorInfo info;
  uint32_t shard = 0;
};

class Checkpoint {
 public:
  static Result<Checkpoint> open(const std::string& folder);
  // The same from any set of files; `label` stands for the folder in messages.
  static Result<Checkpoint> open(std::string label, std::unique_ptr<CheckpointFiles> files);

  const std::string& folder() const { return folder_; }
  const CheckpointFiles& files() const { return *files_; }  // tokenizer.json, card.json and whatever else lies beside
  const ModelConfig& config() const { return config_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }
  const StoredTensor* find(std::string_view name) const;
  std::span<const uint8_t> bytes(const StoredTensor& tensor) const;
  const std::vector<std::string>& shard_files() const { return shard_files_; }
  uint64_t payload_bytes() const { return payload_bytes_; }  // sum over tensors
  uint64_t index_bytes() const { return index_bytes_; }      // what the index says that sum is; 0: it does not say

 private:
  Checkpoint() = default;
  Status open_shards(const ShardIndex& index);
  Status check_against_index(const ShardIndex& index) const;

  std::string folder_;
  ModelConfig config_;
  std::vector<std::string> shard_files_;
  std::unique_ptr<CheckpointFiles> files_;
  std::vector<std::span<const uint8_t>> data_;  // data section of each shard
  std::vector<StoredTensor> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
  uint64_t payload_bytes_ = 0, index_bytes_ = 0;
};

}  // namespace deepinfer
