// SPDX-License-Identifier: MIT
// Property: an accepted index names plain files only, each once.
#include <set>
#include <string_view>

#include "base/check.h"
#include "model/checkpoint.h"

namespace deepinfer {

int fuzz_shard_index(const uint8_t* data, size_t size) {
  const auto index = parse_shard_index(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!index.ok()) return 0;
  std::set<std::string> seen;
  for (const std::string& file : index.value().files) {
    CHECK(!file.empty() && file != "." && file != ".." && file.find('/') == std::string::npos &&
          file.find('\0') == std::string::npos);
    CHECK(seen.insert(file).second);
  }
  for (const auto& [tensor, file] : index.value().tensor_files) CHECK(file < index.value().files.size());
  return 0;
}

}  // namespace deepinfer
