// SPDX-License-Identifier: MIT
#include "model/checkpoint_files.h"

#include <algorithm>
#include <filesystem>

#include "base/file.h"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;

// A regular file, or a link that ends at one: opening a pipe or a device would wait for ever.
Status check_regular_file(const std::string& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found) return not_found(path + ": no such file");
  if (error) return invalid_argument(path + ": " + error.message());
  if (status.type() != fs::file_type::regular) return invalid_argument(path + " is no regular file");
  return {};
}

class FolderFiles final : public CheckpointFiles {
 public:
  explicit FolderFiles(std::string folder) : folder_(std::move(folder)) {}

  bool contains(const std::string& name) const override {
    std::error_code error;
    const fs::file_type type =
        fs::symlink_status(path(name), error).type();  // a broken link is there, and an error later
    return type != fs::file_type::not_found && type != fs::file_type::none;
  }
  Result<std::string> text(const std::string& name, size_t bytes_max) const override {
    TRY(check_regular_file(path(name)));
    return read_file(path(name), bytes_max);
  }
  Result<std::span<const uint8_t>> map(const std::string& name) override {
    TRY(check_regular_file(path(name)));
    ASSIGN_OR_RETURN(MappedFile file, MappedFile::open(path(name)));
    const std::span<const uint8_t> bytes = file.bytes();
    mapped_.push_back(std::move(file));
    return bytes;
  }
  std::string path(const std::string& name) const override { return folder_ + "/" + name; }

 private:
  std::string folder_;
  std::vector<MappedFile> mapped_;
};

class FilesInMemory final : public CheckpointFiles {
 public:
  FilesInMemory(std::string label, std::vector<MemoryFile> files)
      : label_(std::move(label)), files_(std::move(files)) {}

  bool contains(const std::string& name) const override { return find(name) != nullptr; }
  Result<std::string> text(const std::string& name, size_t bytes_max) const override {
    const MemoryFile* file = find(name);
    if (!file) return not_found(path(name) + ": no such file");
    if (file->bytes.size() > bytes_max)
      return resource_exhausted(path(name) + ": more than " + std::to_string(bytes_max) + " bytes");
    return std::string(file->bytes.begin(), file->bytes.end());
  }
  Result<std::span<const uint8_t>> map(const std::string& name) override {
    const MemoryFile* file = find(name);
    if (!file) return not_found(path(name) + ": no such file");
    return file->bytes;
  }
  std::string path(const std::string& name) const override { return label_ + "/" + name; }

 private:
  const MemoryFile* find(const std::string& name) const {
    const auto at = std::ranges::find(files_, name, &MemoryFile::name);
    return at == files_.end() ? nullptr : &*at;
  }

  std::string label_;
  std::vector<MemoryFile> files_;
};

}  // namespace

Result<std::unique_ptr<CheckpointFiles>> open_folder(const std::string& folder) {
  std::error_code error;
  if (!fs::is_directory(folder, error))
    return not_found(folder + ": no such folder" + (error ? " (" + error.message() + ")" : std::string()));
  return std::unique_ptr<CheckpointFiles>(std::make_unique<FolderFiles>(folder));
}

std::unique_ptr<CheckpointFiles> files_in_memory(std::string label, std::vector<MemoryFile> files) {
  return std::make_unique<FilesInMemory>(std::move(label), std::move(files));
}

}  // namespace deepinfer
