// SPDX-License-Identifier: MIT
#include "tools/inspect_report.h"

#include <fmt/format.h>

#include <cmath>

namespace deepinfer {
namespace {

// A number without a fraction where it has none.
Json number(double value) { return value == std::floor(value) ? Json(static_cast<int64_t>(value)) : Json(value); }

Json list(const std::vector<std::string>& texts) { return Json::Array(texts.begin(), texts.end()); }

// 551,566,180,464.
std::string grouped(int64_t value) {
  const std::string digits = std::to_string(value);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out.push_back(',');
    out.push_back(digits[i]);
  }
  return out;
}

// "552B", "7.9B", "4.4M".
std::string count_text(int64_t n) {
  const double value = static_cast<double>(n);
  if (n >= 10'000'000'000) return fmt::format("{:.0f}B", value / 1e9);
  if (n >= 1'000'000'000) return fmt::format("{:.1f}B", value / 1e9);
  if (n >= 1'000'000) return fmt::format("{:.1f}M", value / 1e6);
  return grouped(n);
}

Json parts_json(const ModelSize& size) {
  Json::Array parts;
  for (int i = 0; i < kNumWeightParts; ++i) {
    const PartSize& part = size.parts[static_cast<size_t>(i)];
    if (part.num_tensors == 0) continue;
    parts.push_back(Json::Object{{"part", to_string(static_cast<WeightPart>(i))},
                                 {"tensors", part.num_tensors},
                                 {"parameters", part.parameters},
                                 {"bytes", part.bytes}});
  }
  return parts;
}

Json parameters_json(const ModelSize& size) {
  return Json::Object{{"total", size.total.parameters},
                      {"active", size.decode_parameters},
                      {"active_prefill", size.prefill_parameters},
                      {"backbone", size.backbone_parameters},
                      {"engram", size.part(WeightPart::kEngramTables).parameters},
                      {"engram_linears", size.part(WeightPart::kEngramLinears).parameters},
                      {"vision", size.part(WeightPart::kVision).parameters},
                      {"draft", size.part(WeightPart::kDraft).parameters}};
}

Json fits_json(const InspectReport& report) {
  const MemoryPlan& plan = report.plan;
  Json::Array items;
  for (const MemoryItem& item : plan.items)
    items.push_back(
        Json::Object{{"name", item.name}, {"bytes", item.bytes}, {"place", item.resident ? "memory" : "disk"}});
  return Json::Object{{"start", plan.fits()},
                      {"everything_in_memory", plan.fits_whole()},
                      {"needed_bytes", plan.resident_bytes},
                      {"on_disk_bytes", plan.disk_bytes},
                      {"available_bytes", plan.machine.available_bytes},
                      {"memory_bytes", plan.machine.total_bytes},
                      {"more_kv_tokens", plan.positions_left(report.config)},
                      {"plan", std::move(items)}};
}

std::string size_text(const ModelSize& size) {
  std::string out = fmt::format("  {:<32} {:>8} {:>18} {:>18}\n", "part", "tensors", "parameters", "bytes");
  const auto line = [&](const char* name, const PartSize& part) {
    out += fmt::format("  {:<32} {:>8} {:>18} {:>18}\n", name, grouped(part.num_tensors), grouped(part.parameters),
                       grouped(part.bytes));
  };
  for (int i = 0; i < kNumWeightParts; ++i)
    if (size.parts[static_cast<size_t>(i)].num_tensors > 0)
      line(to_string(static_cast<WeightPart>(i)), size.parts[static_cast<size_t>(i)]);
  line("total", size.total);
  out += fmt::format("  backbone {}, Engram tables {}, active per token: decode {}, prefill {} parameters\n",
                     count_text(size.backbone_parameters), count_text(size.part(WeightPart::kEngramTables).parameters),
                     count_text(size.decode_parameters), count_text(size.prefill_parameters));
  return out;
}

}  // namespace

Json report_json(const InspectReport& report) {
  Json::Object out{{"architecture", report.config.architecture},
                   {"parameters", parameters_json(report.size)},
                   {"tensors", report.num_tensors},
                   {"bytes", report.bytes},
                   {"bytes_per_token", report.size.decode_bytes},
                   {"kv_bytes_per_token", number(global_bytes_per_token(report.config))},
                   {"state_bytes_per_sequence", report.plan.lane_bytes},
                   {"state_bytes_packed", packed_state_bytes(report.config)},
                   {"context", report.config.context_max},
                   {"fits", fits_json(report)},
                   {"problems", list(report.problems)},
                   {"notes", list(report.notes)},
                   {"shards", report.num_shards},
                   {"parts", parts_json(report.size)}};
  if (report.verified_bytes > 0) out.emplace_back("verified_bytes", report.verified_bytes);
  if (!report.card.is_null()) out.emplace_back("card", report.card);
  return out;
}

std::string report_text(const InspectReport& report) {
  const ModelConfig& c = report.config;
  std::string out =
      fmt::format("{}: {}, {} layers and {} draft layers, width {}, {} experts, context {}\n", report.folder,
                  c.architecture, c.num_layers, c.draft.num_layers, c.hidden, c.num_experts, grouped(c.context_max));
  if (report.card.is_object())
    for (const auto& [key, value] : report.card.as_object())
      out += fmt::format("  {}: {}\n", key, value.is_string() ? value.as_string() : to_json(value, {.spaces = true}));
  out += fmt::format("{} tensors in {} shards, {} bytes\n", grouped(report.num_tensors), report.num_shards,
                     grouped(static_cast<int64_t>(report.bytes)));
  out += size_text(report.size);
  out += fmt::format(
      "weights read per decoded token: {}; global KV per token: {} bytes; private state per sequence: {} bytes ({} "
      "when stored)\n",
      bytes_to_string(report.size.decode_bytes), to_json(number(global_bytes_per_token(c))),
      grouped(report.plan.lane_bytes), grouped(packed_state_bytes(c)));
  out += fmt::format("memory on this machine:\n{}", report.plan.to_text());
  out += report.plan.fits()
             ? fmt::format("  fits; room for {} more tokens of global KV\n", grouped(report.plan.positions_left(c)))
             : std::string("  does not fit: the engine would refuse to start\n");
  if (report.verified_bytes > 0)
    out += fmt::format("verified: {} bytes read\n", grouped(static_cast<int64_t>(report.verified_bytes)));
  for (const std::string& note : report.notes) out += fmt::format("note: {}\n", note);
  if (report.problems.empty()) return out + "no problems";
  out += fmt::format("{} problems:", report.problems.size());
  for (const std::string& problem : report.problems) out += fmt::format("\n  {}", problem);
  return out;
}

}  // namespace deepinfer
