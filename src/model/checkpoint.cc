// SPDX-License-Identifier: MIT
#include "model/checkpoint.h"

#include "base/json.h"

namespace deepinfer {
namespace {

constexpr size_t kConfigBytesMax = size_t{4} << 20;
constexpr size_t kIndexBytesMax = size_t{64} << 20;
constexpr size_t kShardsMax = 4096;

Status check_shard_name(const std::string& name) {
  const bool plain = !name.empty() && name != "." && name != ".." && name.size() <= 255 &&
                     name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
  if (!plain)
    return invalid_argument("shard \"" + name.substr(0, 100) +
                            "\": expected the name of a file in the checkpoint's folder, without a path");
  return {};
}

Result<ModelConfig> read_config(const CheckpointFiles& files) {
  for (const char* name : {"config.json", "inference/config.json"}) {
    if (!files.contains(name)) continue;
    ASSIGN_OR_RETURN(const std::string text, files.text(name, kConfigBytesMax));
    Result<ModelConfig> config = parse_model_config(text);
    if (!config.ok()) return config.status().prefixed(files.path(name));
    return config;
  }
  return not_found(files.path("") + ": neither config.json nor inference/config.json");
}

Result<ShardIndex> read_index(const CheckpointFiles& files) {
  const std::string name = "model.safetensors.index.json", single = "model.safetensors";
  if (files.contains(name)) {
    ASSIGN_OR_RETURN(const std::string text, files.text(name, kIndexBytesMax));
    Result<ShardIndex> index = parse_shard_index(text);
    if (!index.ok()) return index.status().prefixed(files.path(name));
    return index;
  }
  if (!files.contains(single)) return not_found(files.path("") + ": neither " + name + " nor " + single);
  return ShardIndex{{single}, {}, 0};
}

}  // namespace

Result<ShardIndex> parse_shard_index(std::string_view json_text) {
  ASSIGN_OR_RETURN(const Json root, parse_json(json_text, {.bytes_max = kIndexBytesMax, .depth_max = 16}));
  const Json* map = root.find("weight_map");
  if (!map || !map->is_object()) return invalid_argument("no \"weight_map\" object");
  ShardIndex index;
  if (const Json* metadata = root.find("metadata"))
    if (const Json* size = metadata->find("total_size");
        size && size->is_integer() && !(size->kind() == Json::Kind::kInt && size->as_int() < 0))
      index.total_bytes = size->as_uint();
  std::unordered_map<std::string_view, uint32_t> number_of;
  index.tensor_files.reserve(map->as_object().size());
  for (const auto& [tensor, file] : map->as_object()) {
    if (!file.is_string()) return invalid_argument("weight_map: the file of " + tensor + " is no string");
    const auto [at, is_new] = number_of.emplace(file.as_string(), static_cast<uint32_t>(index.files.size()));
    if (is_new) {
      TRY(check_shard_name(file.as_string()));
      if (index.files.size() == kShardsMax)
        return resource_exhausted("weight_map names more than " + std::to_string(kShardsMax) + " shards");
      index.files.push_back(file.as_string());
    }
    index.tensor_files.emplace_back(tensor, at->second);
  }
  return index;
}

Status Checkpoint::open_shards(const ShardIndex& index) {
  shard_files_ = index.files;
  index_bytes_ = index.total_bytes;
  for (uint32_t shard = 0; shard < index.files.size(); ++shard) {
    ASSIGN_OR_RETURN(const std::span<const uint8_t> bytes, files_->map(index.files[shard]));
    Result<SafetensorsHeader> header = parse_safetensors_header(bytes, bytes.size());
    if (!header.ok()) return header.status().prefixed(files_->path(index.files[shard]));
    data_.push_back(bytes.subspan(header->data_begin));
    for (TensorInfo& info : header->tensors) {
      payload_bytes_ += info.size_bytes();
      tensors_.push_back({std::move(info), shard});
    }
  }
  by_name_.reserve(tensors_.size());
  for (size_t i = 0; i < tensors_.size(); ++i) {
    const auto [at, is_new] = by_name_.emplace(tensors_[i].info.name, i);
    if (!is_new)
      return corruption("tensor " + tensors_[i].info.name + " stands in two shards: " +
                        shard_files_[tensors_[at->second].shard] + " and " + shard_files_[tensors_[i].shard]);
  }
  return {};
}

// Index and headers must tell the same story. A single file without an index has nothing to compare.
Status Checkpoint::check_against_index(const ShardIndex& index) const {
  if (index.tensor_files.empty()) return {};
  for (const auto& [name, file] : index.tensor_files) {
    const StoredTensor* tensor = find(name);
    if (!tensor)
      return corruption("tensor " + name + ": the index places it in " + index.files[file] +
                        ", but that shard does not hold it");
    if (tensor->shard != file)
      return corruption("tensor " + name + ": the index places it in " + index.files[file] + ", it stands in " +
                        shard_files_[tensor->shard]);
  }
  if (index.tensor_files.size() == tensors_.size()) return {};
  std::unordered_map<std::string_view, bool> listed;
  for (const auto& [name, file] : index.tensor_files) listed.emplace(name, true);
  for (const StoredTensor& tensor : tensors_)
    if (!listed.contains(tensor.info.name))
      return corruption("tensor " + tensor.info.name + " of " + shard_files_[tensor.shard] + " is not in the index");
  return {};
}

Result<Checkpoint> Checkpoint::open(const std::string& folder) {
  ASSIGN_OR_RETURN(std::unique_ptr<CheckpointFiles> files, open_folder(folder));
  return open(folder, std::move(files));
}

Result<Checkpoint> Checkpoint::open(std::string label, std::unique_ptr<CheckpointFiles> files) {
  Checkpoint checkpoint;
  checkpoint.folder_ = std::move(label);
  checkpoint.files_ = std::move(files);
  ASSIGN_OR_RETURN(checkpoint.config_, read_config(*checkpoint.files_));
  ASSIGN_OR_RETURN(const ShardIndex index, read_index(*checkpoint.files_));
  TRY(checkpoint.open_shards(index));
  TRY(checkpoint.check_against_index(index).prefixed(checkpoint.folder_));
  return checkpoint;
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &tensors_[at->second];
}

std::span<const uint8_t> Checkpoint::bytes(const StoredTensor& tensor) const {
  return data_[tensor.shard].subspan(tensor.info.begin, tensor.info.size_bytes());
}

}  // namespace deepinfer
