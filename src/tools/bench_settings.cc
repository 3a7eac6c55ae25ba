// SPDX-License-Identifier: MIT
#include "tools/bench_settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "tensor/cpu_features.h"

namespace deepinfer {
namespace {

struct Choice {
  const char* key;
  std::vector<std::string> values;
};

const std::vector<Choice>& choices() {
  static const std::vector<Choice> table = {{"backend", {"cpu", "cuda"}},
                                            {"numerics", {"exact", "fast"}},
                                            {"level", {"auto", "ref", "avx2", "avx512", "vnni", "bf16", "amx"}}};
  return table;
}

}  // namespace

Status check_bench_setting(const std::string& key, const std::string& value) {
  const auto choice = std::ranges::find_if(choices(), [&](const Choice& c) { return key == c.key; });
  if (choice == choices().end()) return {};
  if (std::ranges::find(choice->values, value) == choice->values.end())
    return invalid_argument(
        fmt::format("--set {}={}: expected one of {}", key, value, fmt::join(choice->values, ", ")));
  if (key == "level" && parse_cpu_level(value).value_or(CpuLevel::kRef) > machine_cpu_level())
    return invalid_argument(
        fmt::format("--set level={}: this machine offers {} at most", value, to_string(machine_cpu_level())));
  return {};
}

}  // namespace deepinfer
