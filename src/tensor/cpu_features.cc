// SPDX-License-Identifier: MIT
#include "tensor/cpu_features.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

namespace deepinfer {

bool dot_product_rounds_each_step();        // cpu/dot_product_bf16.cc
bool dot_product_outpaces_multiply_adds();  // likewise

namespace {

constexpr const char* kNames[] = {"ref", "avx2", "avx512", "vnni", "bf16", "amx"};

// The kernel grants the large AMX tile state per process on request (arch_prctl ARCH_REQ_XCOMP_PERM,
// XFEATURE_XTILEDATA).
bool request_amx_tiles() {
  constexpr long kArchReqXcompPerm = 0x1023, kXtileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXtileData) == 0;
}

bool has_amx() {
  uint32_t a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool tiles = (d >> 24) & 1, int8 = (d >> 25) & 1, bf16 = (d >> 22) & 1;
  return tiles && int8 && bf16 && request_amx_tiles();
}

CpuLevel find_level() {
  __builtin_cpu_init();  // checks the operating system's register support too
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi2"))
    return CpuLevel::kRef;
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512cd");
  if (!avx512) return CpuLevel::kAvx2;
  if (!__builtin_cpu_supports("avx512vnni") || !__builtin_cpu_supports("avx512vbmi")) return CpuLevel::kAvx512;
  if (!__builtin_cpu_supports("avx512bf16") || !dot_product_rounds_each_step()) return CpuLevel::kVnni;
  return has_amx() ? CpuLevel::kAmx : CpuLevel::kBf16;
}

std::string model_name() {
  uint32_t words[12] = {};
  for (uint32_t leaf = 0; leaf < 3; ++leaf)
    if (!__get_cpuid(0x80000002 + leaf, &words[4 * leaf], &words[4 * leaf + 1], &words[4 * leaf + 2],
                     &words[4 * leaf + 3]))
      return "unknown x86-64";
  char text[49] = {};
  std::memcpy(text, words, 48);
  return text + std::strspn(text, " ");
}

}  // namespace

const char* to_string(CpuLevel level) { return kNames[static_cast<int>(level)]; }

std::optional<CpuLevel> parse_cpu_level(std::string_view name) {
  if (name == "auto") return fastest_cpu_level();
  for (int i = 0; i <= static_cast<int>(CpuLevel::kAmx); ++i)
    if (name == kNames[i]) return static_cast<CpuLevel>(i);
  return std::nullopt;
}

CpuLevel machine_cpu_level() {
  static const CpuLevel level = find_level();
  return level;
}

CpuLevel fastest_cpu_level() {
  static const CpuLevel level = machine_cpu_level() >= CpuLevel::kBf16 && !dot_product_outpaces_multiply_adds()
                                    ? CpuLevel::kVnni
                                    : machine_cpu_level();
  return level;
}

std::string describe_cpu() {
  const std::string highest = fastest_cpu_level() == machine_cpu_level()
                                  ? ""
                                  : std::string(", the fastest of those up to ") + to_string(machine_cpu_level());
  return model_name() + " (kernel level " + to_string(fastest_cpu_level()) + highest + ")";
}

}  // namespace deepinfer
