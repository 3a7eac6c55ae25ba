// SPDX-License-Identifier: MIT
// Files as read by the program: a read-only memory map, whole-file reads with a limit, gzip where the name ends in .gz.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/status.h"

namespace deepinfer {

// Read-only map of a file. The bytes stay valid as long as the object lives; pages are read when first touched.
class MappedFile {
 public:
  static Result<MappedFile> open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();
  std::span<const uint8_t> bytes() const { return {data_, size_}; }

 private:
  MappedFile(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  const uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

// Whole file, "-" for standard input; a path ending in .gz is inflated. Errors: not_found, resource_exhausted beyond
// `bytes_max` (counted after inflating), corruption for a damaged gzip stream.
Result<std::string> read_file(const std::string& path, size_t bytes_max = size_t{1} << 30);

// Writes to a temporary name beside `path`, then renames: readers see the old file or the whole new one. "-" is stdout.
Status write_file_atomically(const std::string& path, std::span<const uint8_t> bytes);
Status write_file_atomically(const std::string& path, const std::string& text);

Result<std::string> gunzip(std::span<const uint8_t> bytes, size_t bytes_max);

}  // namespace deepinfer
