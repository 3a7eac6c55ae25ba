// SPDX-License-Identifier: MIT
// Property: an accepted header names byte ranges inside the file that are packed and as long as their shapes say.
#include "base/check.h"
#include "tensor/safetensors.h"

namespace deepinfer {

int fuzz_safetensors(const uint8_t* data, size_t size) {
  const auto file = SafetensorsFile::parse(std::string(reinterpret_cast<const char*>(data), size));
  if (!file.ok()) return 0;
  uint64_t total = 0;
  unsigned sum = 0;
  for (const TensorInfo& tensor : file.value().tensors()) {
    const auto bytes = file.value().bytes(tensor);
    CHECK(bytes.size() == static_cast<uint64_t>(tensor.num_elements()) * size_bytes(tensor.dtype));
    total += bytes.size();
    if (!bytes.empty()) sum += bytes.front() + bytes.back();  // inside the file, or the sanitizer says so
  }
  CHECK(total <= size && sum <= 510 * file.value().tensors().size());
  return 0;
}

}  // namespace deepinfer
