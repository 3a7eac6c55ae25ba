// SPDX-License-Identifier: MIT
// deepinfer doctor: what this machine offers, which kernel each op resolves to and why; with --model also whether that
// checkpoint fits.
#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>

#include "base/json.h"
#include "base/thread_pool.h"
#include "deepinfer_version.h"
#include "kernels/kernel_table.h"
#include "model/memory_plan.h"
#include "tensor/device.h"
#include "tools/command.h"
#include "vision/vision_kernels.h"

namespace deepinfer {
namespace {

struct DoctorArguments {
  std::string model, backend = "auto", cpu = "auto";
  bool json = false;
};

struct RowReport {
  std::string name, needs;
  bool fits = false;
};
struct OpReport {
  std::string op, chosen, why;  // chosen is empty where no row fits
  std::vector<RowReport> rows;
};

// The last fitting row wins; every row after it is one this machine or this choice cannot run.
template <typename Params>
OpReport report_op(const char* op, KernelRows<Params> rows, const Target& target) {
  OpReport report{op, "", "", {}};
  std::string missing;
  for (const KernelRow<Params>& row : rows) {
    const bool fits = row_fits(row, target);
    report.rows.push_back({row.name, row.needs, fits});
    if (fits) report.chosen = row.name, missing.clear();
    else missing += fmt::format("{}{} needs {}", missing.empty() ? "" : "; ", row.name, row.needs);
  }
  report.why = report.chosen.empty() ? "no row fits: " + missing
               : missing.empty()     ? "the most special row there is"
                                     : missing;
  return report;
}

std::vector<OpReport> report_ops(const Target& target) {
  std::vector<OpReport> ops;
#define DEEPINFER_REPORT_OP(member, params, rows) ops.push_back(report_op<params>(#member, rows(), target));
  DEEPINFER_KERNELS(DEEPINFER_REPORT_OP)
  DEEPINFER_VISION_KERNELS(DEEPINFER_REPORT_OP)
#undef DEEPINFER_REPORT_OP
  return ops;
}

struct Device {
  const char* name;
  const char* path;  // of its driver
};
constexpr Device kDevices[] = {{"NVIDIA GPU", "/dev/nvidiactl"}, {"Ascend NPU", "/dev/davinci_manager"}};

std::vector<std::string> found_devices() {
  std::vector<std::string> found;
  std::error_code error;
  for (const Device& device : kDevices)
    if (std::filesystem::exists(device.path, error))
      found.emplace_back(fmt::format("{} driver ({})", device.name, device.path));
  return found;
}

Result<Target> target_of(const DoctorArguments& arguments) {
  Target target;
  target.level = parse_cpu_level(arguments.cpu).value_or(CpuLevel::kRef);
  if (target.level > machine_cpu_level())
    return unimplemented(
        fmt::format("--cpu {}: this machine offers {} at most", arguments.cpu, to_string(machine_cpu_level())));
  if (arguments.backend == "cuda") target.backend = Backend::kCuda;
  if (arguments.backend == "ascend") target.backend = Backend::kAscend;
  return target;
}

struct DoctorReport {
  MachineMemory memory;
  Target target;
  std::vector<OpReport> ops;
  std::vector<std::string> devices;
  std::string model_plan;  // empty: no model asked for
  Status model_status;
};

Result<DoctorReport> examine(const DoctorArguments& arguments) {
  DoctorReport report;
  ASSIGN_OR_RETURN(report.target, target_of(arguments));
  ASSIGN_OR_RETURN(report.memory, read_machine_memory());
  report.ops = report_ops(report.target);
  report.devices = found_devices();
  if (arguments.model.empty()) return report;
  const auto checkpoint = Checkpoint::open(arguments.model);
  if (!checkpoint.ok()) return checkpoint.status();
  const ModelConfig& config = checkpoint.value().config();
  WeightViews nowhere;
  const ModelSize size = measure_model(config, declare_weights(config, nowhere));
  ASSIGN_OR_RETURN(const MemoryPlan plan,
                   plan_memory(config, size, {.lanes = 1, .positions = config.context_max}, report.memory));
  report.model_plan = plan.to_text();
  report.model_status = check_fits(plan);
  return report;
}

Json to_json_report(const DoctorReport& report) {
  Json::Array ops;
  for (const OpReport& op : report.ops) {
    Json::Array rows;
    for (const RowReport& row : op.rows)
      rows.push_back(Json::Object{{"row", row.name}, {"needs", row.needs}, {"fits", row.fits}});
    ops.push_back(Json::Object{{"op", op.op},
                               {"chosen", op.chosen.empty() ? Json(nullptr) : Json(op.chosen)},
                               {"why", op.why},
                               {"rows", std::move(rows)}});
  }
  Json::Object out{{"version", DEEPINFER_VERSION},
                   {"commit", DEEPINFER_COMMIT},
                   {"backends", DEEPINFER_BACKENDS},
                   {"cpu", describe_cpu()},
                   {"cpu_level", to_string(machine_cpu_level())},
                   {"usable_cpus", num_usable_cpus()},
                   {"memory_bytes", report.memory.total_bytes},
                   {"memory_available_bytes", report.memory.available_bytes},
                   {"devices", Json::Array(report.devices.begin(), report.devices.end())},
                   {"cuda", describe_cuda()},
                   {"target", Json::Object{{"backend", to_string(report.target.backend)},
                                           {"cpu_level", to_string(report.target.level)}}},
                   {"ops", std::move(ops)}};
  if (!report.model_plan.empty()) out.emplace_back("model_fits", report.model_status.ok());
  return out;
}

void print_text(const DoctorReport& report) {
  fmt::print("deepinfer {} ({}), backends compiled: {}\n", DEEPINFER_VERSION, DEEPINFER_COMMIT, DEEPINFER_BACKENDS);
  fmt::print("cpu: {}; {} usable\n", describe_cpu(), num_usable_cpus());
  fmt::print("memory: {} available of {}\n", bytes_to_string(report.memory.available_bytes),
             bytes_to_string(report.memory.total_bytes));
  for (const std::string& device : report.devices) fmt::print("device: {}\n", device);
  if (report.devices.empty()) fmt::print("device: no accelerator driver found\n");
  fmt::print("cuda: {}\n", describe_cuda());
  fmt::print("kernels for backend {}, CPU level {}:\n", to_string(report.target.backend),
             to_string(report.target.level));
  for (const OpReport& op : report.ops) {
    std::string matrix;
    for (const RowReport& row : op.rows)
      matrix += fmt::format("{}{}{}", matrix.empty() ? "" : " ", row.fits ? "" : "-", row.name);
    fmt::print("  {:<18} {:<12} of: {}\n", op.op, op.chosen.empty() ? "NONE" : op.chosen, matrix);
    if (op.rows.empty() || !op.rows.back().fits) fmt::print("  {:<18} {}\n", "", op.why);
  }
  if (report.model_plan.empty()) return;
  fmt::print("memory of this model, one sequence at full context:\n{}{}\n", report.model_plan,
             report.model_status.ok() ? "it fits" : "it does not fit");
}

int run(const DoctorArguments& arguments) {
  const auto report = examine(arguments);
  if (!report.ok()) return exit_status(report.status());
  if (arguments.json) fmt::print("{}\n", to_json(to_json_report(report.value())));
  else print_text(report.value());
  for (const OpReport& op : report.value().ops)
    if (op.chosen.empty()) return exit_status(unimplemented(fmt::format("{}: {}", op.op, op.why)));
  return 0;
}

}  // namespace

Command doctor_command() {
  const auto arguments = std::make_shared<DoctorArguments>();
  return {.name = "doctor",
          .summary = "what this machine offers, which kernel each op resolves to and why",
          .examples = "  deepinfer doctor\n  deepinfer doctor --cpu avx2 --model testdata/model_a\n",
          .declare =
              [arguments](OptionSet& options) {
                options.add("--model", arguments->model, "checkpoint folder: also say whether it fits (default: none)");
                options.choice("--backend", arguments->backend, {"auto", "cpu", "cuda", "ascend"},
                               "device to resolve for (default auto)");
                options.choice("--cpu", arguments->cpu, {"auto", "ref", "avx2", "avx512", "vnni", "bf16", "amx"},
                               "CPU kernel level (default auto: the best this machine has)");
                options.flag("--json", arguments->json, "print one JSON object");
              },
          .run = [arguments] { return run(*arguments); }};
}

}  // namespace deepinfer
