// SPDX-License-Identifier: MIT
#include "tensor/dtype.h"

namespace deepinfer {
namespace {
struct Row {
  DType dtype;
  std::string_view name;
  size_t size_bytes;
};
constexpr Row kRows[] = {{DType::kBF16, "BF16", 2}, {DType::kF32, "F32", 4},        {DType::kF16, "F16", 2},
                         {DType::kF64, "F64", 8},   {DType::kF8E4M3, "F8_E4M3", 1}, {DType::kF8E8M0, "F8_E8M0", 1},
                         {DType::kI8, "I8", 1},     {DType::kU8, "U8", 1},          {DType::kI16, "I16", 2},
                         {DType::kI32, "I32", 4},   {DType::kI64, "I64", 8},        {DType::kBool, "BOOL", 1}};
}  // namespace

std::string_view to_string(DType dtype) { return kRows[static_cast<int>(dtype)].name; }
size_t size_bytes(DType dtype) { return kRows[static_cast<int>(dtype)].size_bytes; }
std::optional<DType> parse_dtype(std::string_view name) {
  for (const Row& row : kRows)
    if (row.name == name) return row.dtype;
  return std::nullopt;
}

}  // namespace deepinfer
