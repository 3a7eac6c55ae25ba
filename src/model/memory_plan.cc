// SPDX-License-Identifier: MIT
#include "model/memory_plan.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <optional>

#include "base/file.h"
#include "model/cache_layout.h"

namespace deepinfer {
namespace {

// The number after `key` in a text of "key: number unit" lines.
std::optional<int64_t> number_after(const std::string& text, const std::string& key) {
  size_t at = text.find(key);
  if (at == std::string::npos) return std::nullopt;
  at = text.find_first_of("0123456789", at + key.size());
  if (at == std::string::npos) return std::nullopt;
  int64_t number = 0;
  std::from_chars(text.data() + at, text.data() + text.size(), number);
  return number;
}

// The least limit of the process's control group and those above it; none where there is none.
std::optional<int64_t> control_group_limit() {
  const auto groups = read_file("/proc/self/cgroup", 1 << 16);
  std::optional<int64_t> least;
  for (const std::string& path : memory_limit_files(groups.ok() ? groups.value() : "")) {
    const auto text = read_file(path, 4096);
    const auto limit = text.ok() ? number_after(text.value(), "") : std::nullopt;  // "max": none
    if (limit && (!least || *limit < *least)) least = limit;
  }
  return least;
}

void add(MemoryPlan& plan, std::string name, int64_t bytes, bool resident = true) {
  if (bytes == 0) return;
  (resident ? plan.resident_bytes : plan.disk_bytes) += bytes;
  plan.items.push_back({std::move(name), bytes, resident});
}

// A tenth of the machine stays free for what no plan counts: page tables, other programs, file pages on their way.
void add_experts(MemoryPlan& plan, int64_t bytes, const ExpertMemory& wanted) {
  int64_t budget = bytes;
  if (wanted.kind == ExpertMemory::Kind::kBytes) budget = wanted.bytes;
  if (wanted.kind == ExpertMemory::Kind::kFree)
    budget = std::max<int64_t>(0, plan.machine.available_bytes - plan.resident_bytes - plan.machine.total_bytes / 10);
  if (budget >= bytes) {
    add(plan, "routed experts", bytes);
    return;
  }
  plan.expert_bytes = std::max<int64_t>(1, budget);  // each layer keeps what its rows need, however little is allowed
  add(plan, "routed experts, used last", plan.expert_bytes);
  add(plan, "routed experts, the others", bytes - plan.expert_bytes, false);
}

}  // namespace

Result<ExpertMemory> parse_expert_memory(std::string_view text) {
  if (text == "all") return ExpertMemory{};
  if (text == "free") return ExpertMemory{ExpertMemory::Kind::kFree, 0};
  double gb = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), gb);
  if (error != std::errc() || end != text.data() + text.size() || !(gb > 0 && gb <= 1e6))
    return invalid_argument("expert memory '" + std::string(text) + "': expected all, free, or a number of GB above 0");
  return ExpertMemory{ExpertMemory::Kind::kBytes, std::max<int64_t>(1, static_cast<int64_t>(gb * 1e9))};
}

std::vector<std::string> memory_limit_files(std::string_view groups) {
  std::vector<std::string> files;
  const auto add_chain = [&](const std::string& root, std::string path, const char* file) {
    for (; path.size() > 1; path.resize(path.rfind('/'))) files.push_back(root + path + '/' + file);
    files.push_back(root + '/' + file);
  };
  std::string two = "/", one = "/";
  for (size_t begin = 0; begin < groups.size();) {
    const size_t end = std::min(groups.find('\n', begin), groups.size());
    const std::string_view line = groups.substr(begin, end - begin);
    begin = end + 1;
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string_view::npos || line.substr(second + 1, 1) != "/") continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) two = line.substr(second + 1);
    else if (controllers == "memory") one = line.substr(second + 1);
  }
  add_chain("/sys/fs/cgroup", two, "memory.max");
  add_chain("/sys/fs/cgroup/memory", one, "memory.limit_in_bytes");
  return files;
}

Result<MachineMemory> read_machine_memory() {
  ASSIGN_OR_RETURN(const std::string text, read_file("/proc/meminfo", 1 << 16));
  const auto total = number_after(text, "MemTotal:"), available = number_after(text, "MemAvailable:");
  if (!total || !available) return unavailable("/proc/meminfo: no MemTotal or MemAvailable");
  MachineMemory memory{*total * 1024, *available * 1024};
  if (const auto limit = control_group_limit()) {
    memory.total_bytes = std::min(memory.total_bytes, *limit);
    memory.available_bytes = std::min(memory.available_bytes, *limit);
  }
  return memory;
}

Result<MemoryPlan> plan_memory(const ModelConfig& config, const ModelSize& size, const MemoryRequest& request,
                               const MachineMemory& machine) {
  ASSIGN_OR_RETURN(const LayerRoles roles, make_layer_roles(config));
  const CacheLayout layout = make_cache_layout(config, roles, draft_run_max(config) + 1);
  MemoryPlan plan;
  plan.machine = machine;
  plan.lane_bytes = layout.lane_bytes();
  const int64_t experts = size.part(WeightPart::kExperts).bytes, tables = size.part(WeightPart::kEngramTables).bytes;
  const int64_t draft = size.part(WeightPart::kDraft).bytes, vision = size.part(WeightPart::kVision).bytes;
  add(plan, "weights of every layer, embedding, head", size.total.bytes - experts - tables - draft - vision);
  add(plan, "draft head", draft);
  add(plan, "vision", vision);
  add(plan, "global KV of " + std::to_string(request.positions) + " tokens",
      (request.positions + kBlockPositions - 1) / kBlockPositions * layout.block_bytes);
  add(plan, "window KV and tails of " + std::to_string(request.lanes) + " sequences",
      request.lanes * layout.lane_bytes());
  add(plan, "work buffers", request.workspace_bytes);
  add(plan, "Engram tables", tables, false);
  add_experts(plan, experts, request.experts);
  return plan;
}

int64_t MemoryPlan::positions_left(const ModelConfig& config) const {
  const double per_token = global_bytes_per_token(config);
  const int64_t left = machine.available_bytes - resident_bytes;
  return left <= 0 || per_token <= 0 ? 0 : static_cast<int64_t>(static_cast<double>(left) / per_token);
}

std::string bytes_to_string(int64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1000 && unit + 1 < std::size(kUnits)) value /= 1000, ++unit;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.2f %s", value, kUnits[unit]);
  return text;
}

std::string MemoryPlan::to_text() const {
  std::string out;
  const auto line = [&](const std::string& name, int64_t bytes, const char* note) {
    char text[160];
    std::snprintf(text, sizeof text, "  %-44s %11s  %s\n", name.c_str(), bytes_to_string(bytes).c_str(), note);
    out += text;
  };
  for (const MemoryItem& item : items) line(item.name, item.bytes, item.resident ? "memory" : "disk, read when needed");
  line("needed in memory", resident_bytes, "");
  line("available", machine.available_bytes, ("of " + bytes_to_string(machine.total_bytes)).c_str());
  return out;
}

Status check_fits(const MemoryPlan& plan) {
  if (plan.fits()) return {};
  return resource_exhausted("the model does not fit this machine: " + bytes_to_string(plan.resident_bytes) +
                            " are needed in memory, " + bytes_to_string(plan.machine.available_bytes) +
                            " are available\n" + plan.to_text() +
                            "Run it on more memory, over several machines with expert parallelism, or, slowly, with "
                            "experts read from the files when they are needed: --expert-memory free.");
}

Result<int64_t> check_model_fits(const ModelConfig& config, const MemoryRequest& request) {
  ASSIGN_OR_RETURN(const MachineMemory machine, read_machine_memory());
  WeightViews nowhere;
  const std::vector<WeightRow> table = declare_weights(config, nowhere);
  ASSIGN_OR_RETURN(const MemoryPlan plan, plan_memory(config, measure_model(config, table), request, machine));
  TRY(check_fits(plan));
  return plan.expert_bytes;
}

}  // namespace deepinfer
