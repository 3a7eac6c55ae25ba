// SPDX-License-Identifier: MIT
// Element types of tensors on disk and in memory, spelled as safetensors spells them.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace deepinfer {

enum class DType { kBF16, kF32, kF16, kF64, kF8E4M3, kF8E8M0, kI8, kU8, kI16, kI32, kI64, kBool };

std::string_view to_string(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);
size_t size_bytes(DType dtype);

}  // namespace deepinfer
