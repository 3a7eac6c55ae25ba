// SPDX-License-Identifier: MIT
// What the CPU and the operating system offer, found at run time. Levels are ordered: a kernel row of level L runs
// where the machine's level is at least L.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace deepinfer {

// avx2: AVX2 + FMA + F16C. avx512: F, BW, VL, DQ, CD. vnni: avx512 + VNNI + VBMI. bf16: vnni + AVX512-BF16 with a
// dot product that rounds after each of its two products, as documented (checked at start). amx: bf16 + tiles.
enum class CpuLevel { kRef, kAvx2, kAvx512, kVnni, kBf16, kAmx };

const char* to_string(CpuLevel level);
std::optional<CpuLevel> parse_cpu_level(std::string_view name);  // "auto" gives the fastest level
CpuLevel machine_cpu_level();                                    // highest level usable here
// The level that "auto" means. Below the highest where a dot product of bf16 pairs takes longer than the two
// multiply-adds it stands for, as on Intel's cores up to at least Sapphire Rapids (four times one, measured at start).
CpuLevel fastest_cpu_level();
std::string describe_cpu();  // "model name: avx2 fma ... (level bf16)"

}  // namespace deepinfer
