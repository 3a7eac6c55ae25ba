// SPDX-License-Identifier: MIT
// The safetensors container: 8 bytes little-endian header length, a JSON object {name: {dtype, shape, data_offsets}},
// then the data. Reading checks everything before anything is allocated for it: the header's length against the file
// and a limit, each dtype, shape and byte range, that ranges neither overlap nor leave the file. Data is never copied
// here. Gaps between tensors are refused as the format demands; trailing padding of the header with spaces is fine.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "tensor/dtype.h"

namespace deepinfer {

struct TensorInfo {
  std::string name;
  DType dtype = DType::kU8;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes from the start of the data section

  uint64_t size_bytes() const { return end - begin; }
  int64_t num_elements() const;
};

// "[2304, 2560] I8".
std::string shape_to_string(std::span<const int64_t> shape);

struct SafetensorsLimits {
  uint64_t header_bytes_max = uint64_t{100} << 20;  // as the format's own implementation
  size_t rank_max = 8;
};

// The header of a file of `file_bytes` bytes whose beginning is `bytes` (the whole header at least; the data need not
// be there). Tensors in order of their data. Errors: corruption that says what was expected and what came.
struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;
  uint64_t data_begin = 0;  // file offset of the data section
};
Result<SafetensorsHeader> parse_safetensors_header(std::span<const uint8_t> bytes, uint64_t file_bytes,
                                                   const SafetensorsLimits& limits = {});

// A small file read whole (inputs and outputs of `logits`, golden data). Owned bytes, views into them.
class SafetensorsFile {
 public:
  static Result<SafetensorsFile> read(const std::string& path);
  static Result<SafetensorsFile> parse(std::string bytes);
  SafetensorsFile(SafetensorsFile&&) = default;
  SafetensorsFile& operator=(SafetensorsFile&&) = default;

  const std::vector<TensorInfo>& tensors() const { return header_.tensors; }
  const TensorInfo* find(std::string_view name) const;
  std::span<const uint8_t> bytes(const TensorInfo& tensor) const;

  // The elements converted to T. Errors: not_found; invalid_argument when the dtype does not convert without loss of
  // kind (floats: BF16, F32; integers: I32, I64, U8).
  Result<std::vector<float>> floats(std::string_view name) const;
  Result<std::vector<int64_t>> integers(std::string_view name) const;

 private:
  SafetensorsFile() = default;
  std::string bytes_;
  SafetensorsHeader header_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

// Collects tensors and writes one file atomically, data in the order of add().
class SafetensorsWriter {
 public:
  // `bytes` holds the elements little-endian, row-major. Precondition: the name is new and the size fits dtype and
  // shape.
  void add(std::string name, DType dtype, std::vector<int64_t> shape, std::span<const uint8_t> bytes);
  void add(std::string name, std::vector<int64_t> shape, std::span<const float> values);
  void add(std::string name, std::vector<int64_t> shape, std::span<const int32_t> values);
  std::string to_bytes() const;
  Status write(const std::string& path) const;

 private:
  std::vector<TensorInfo> tensors_;
  std::string data_;
};

}  // namespace deepinfer
