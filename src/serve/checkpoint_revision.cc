// SPDX-License-Identifier: MIT
#include "serve/checkpoint_revision.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "base/file.h"
#include "base/sha256.h"

namespace deepinfer {

std::string checkpoint_revision(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& file : std::filesystem::directory_iterator(folder, error))
    if (file.is_regular_file()) names.push_back(file.path().filename().string());
  std::sort(names.begin(), names.end());
  std::string text;
  for (const std::string& name : names) {
    const std::filesystem::path path = std::filesystem::path(folder) / name;
    text += fmt::format("{} {} {}\n", name, std::filesystem::file_size(path, error),
                        std::filesystem::last_write_time(path, error).time_since_epoch().count());
    if (!name.ends_with(".json")) continue;
    if (const auto bytes = read_file(path.string()); bytes.ok()) text += bytes.value();
  }
  if (text.empty()) return text;
  return to_hex(sha256({reinterpret_cast<const uint8_t*>(text.data()), text.size()}));
}

}  // namespace deepinfer
