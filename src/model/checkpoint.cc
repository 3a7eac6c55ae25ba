// SPDX-License-Identifier: MIT
#include "model/checkpoint.h"

#include <filesystem>

#include "base/json.h"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;

constexpr size_t kConfigBytesMax = size_t{4} << 20;
constexpr size_t kIndexBytesMax = size_t{64} << 20;
constexpr size_t kShardsMax = 4096;

// A regular file, or a link that ends at one: opening a pipe or a device would wait for ever.
Status check_regular_file(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return not_found(path + ": no such file");
  if (error) return invalid_argument(path + ": " + error.message());
  if (status.type() != fs::file_type::regular) return invalid_argument(path + " is no regular file");
  return {};
}

bool exists(const std::string& path) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  return type != fs::file_type::not_found && type != fs::file_type::none;
}

Status check_shard_name(const std::string& name) {
  const bool plain = !name.empty() && name != "." && name != ".." && name.size() <= 255 &&
                     name.find_first_of(std::string("/\\\0", 3)) == std::string::npos;
  if (!plain)
    return invalid_argument("shard \"" + name.substr(0, 100) +
                            "\": expected the name of a file in the checkpoint's folder, without a path");
  return {};
}

Result<ModelConfig> read_config(const std::string& folder) {
  for (const char* name : {"/config.json", "/inference/config.json"}) {
    const std::string path = folder + name;
    if (!exists(path)) continue;
    TRY(check_regular_file(path));
    ASSIGN_OR_RETURN(const std::string text, read_file(path, kConfigBytesMax));
    Result<ModelConfig> config = parse_model_config(text);
    if (!config.ok()) return config.status().prefixed(path);
    return config;
  }
  return not_found(folder + ": neither config.json nor inference/config.json");
}

Result<ShardIndex> read_index(const std::string& folder) {
  const std::string path = folder + "/model.safetensors.index.json";
  if (exists(path)) {
    TRY(check_regular_file(path));
    ASSIGN_OR_RETURN(const std::string text, read_file(path, kIndexBytesMax));
    Result<ShardIndex> index = parse_shard_index(text);
    if (!index.ok()) return index.status().prefixed(path);
    return index;
  }
  const std::string single = "model.safetensors";
  if (!exists(folder + "/" + single))
    return not_found(folder + ": neither model.safetensors.index.json nor model.safetensors");
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
    const std::string path = folder_ + "/" + index.files[shard];
    TRY(check_regular_file(path));
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path));
    Result<SafetensorsHeader> header = parse_safetensors_header(file.bytes(), file.bytes().size());
    if (!header.ok()) return header.status().prefixed(path);
    data_begins_.push_back(header->data_begin);
    shards_.push_back(std::move(file));
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
  std::error_code error;
  if (!fs::is_directory(folder, error))
    return not_found(folder + ": no such folder" + (error ? " (" + error.message() + ")" : std::string()));
  Checkpoint checkpoint;
  checkpoint.folder_ = folder;
  ASSIGN_OR_RETURN(checkpoint.config_, read_config(folder));
  ASSIGN_OR_RETURN(const ShardIndex index, read_index(folder));
  TRY(checkpoint.open_shards(index));
  TRY(checkpoint.check_against_index(index).prefixed(folder));
  return checkpoint;
}

const StoredTensor* Checkpoint::find(std::string_view name) const {
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : &tensors_[at->second];
}

std::span<const uint8_t> Checkpoint::bytes(const StoredTensor& tensor) const {
  return shards_[tensor.shard].bytes().subspan(data_begins_[tensor.shard] + tensor.info.begin,
                                               tensor.info.size_bytes());
}

}  // namespace deepinfer
