// SPDX-License-Identifier: MIT
// What op benches share: the machine's rows, random packed weights and the ceilings of the same run. For benches only.
#pragma once

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/bench.h"
#include "base/json.h"
#include "base/philox.h"
#include "kernels/kernel_table.h"
#include "kernels/lanes/fma_peak.h"
#include "tensor/buffer.h"

namespace deepinfer::bench_ops {

// What one thread does in registers alone, in operations a second (a multiply-add is two): fp32 fused multiply-adds at
// `level`, and the dot-product instructions of the level if it has them.
struct Peak {
  double flops = 0;
  const char* name = "";
};
inline Peak measure_peak(float (*rounds)(int64_t), double flops_per_round, const char* name) {
  constexpr int64_t kRounds = 1 << 16;
  float keep = 0;
  const double seconds = median_cpu_seconds(5, [&] { keep += rounds(kRounds); });
  asm volatile("" : : "r"(&keep) : "memory");
  return {kRounds * flops_per_round / seconds, name};
}
inline Peak measure_fma_peak(CpuLevel level) {
  if (level < CpuLevel::kAvx2) return {};
  return measure_peak(level >= CpuLevel::kAvx512 ? fma_rounds_avx512 : fma_rounds_avx2, kFlopsPerFmaRound, "fp32 fma");
}
inline Peak measure_bf16_peak(CpuLevel level) {
  if (level < CpuLevel::kBf16) return measure_fma_peak(level);
  return measure_peak(dot_rounds_bf16, kFlopsPerBf16Round, "bf16 dot product");
}
inline Peak measure_int8_peak(CpuLevel level) {
  if (level < CpuLevel::kVnni) return measure_fma_peak(level);
  return measure_peak(dot_rounds_vnni, kFlopsPerInt8Round, "int8 dot product");
}

// Seconds of a body and the peak of the same moments: a core whose other thread belongs to somebody else is slower at
// some times than at others, and a ceiling measured once would be that of another time.
struct Timed {
  double seconds = 0;
  Peak peak;
};

// The context and the resolved ops of one bench run; `--set level=avx2` forces a level.
struct Machine {
  explicit Machine(const BenchOptions& options) : pool(std::max(1, options.num_threads)), context{&pool, &scratch} {
    const auto forced = options.extra.find("level");
    const std::optional<CpuLevel> parsed =
        forced == options.extra.end() ? fastest_cpu_level() : parse_cpu_level(forced->second);
    level = std::min(parsed.value_or(machine_cpu_level()), machine_cpu_level());
    Result<KernelTable> table = KernelTable::resolve({Backend::kCpu, level});
    CHECK(table.ok());
    kernels = std::move(table).value();
  }
  // Seconds of `body`: CPU time where it runs on this thread alone.
  double seconds(int num_runs, const std::function<void()>& body) const {
    return context.num_threads() == 1 ? median_cpu_seconds(num_runs, body) : median_seconds(num_runs, body);
  }
  // The same with the peak before and after every run; the median of the runs by their share of it.
  Timed timed(int num_runs, Peak (*measure)(CpuLevel), const std::function<void()>& body) const {
    const auto clock = context.num_threads() == 1 ? thread_cpu_seconds : clock_seconds;
    std::vector<Timed> runs;
    body();
    for (int i = 0; i < num_runs; ++i) {
      const Peak before = measure(level);
      const double start = clock();
      body();
      Timed run{clock() - start, measure(level)};
      run.peak.flops = (run.peak.flops + before.flops) / 2 * context.num_threads();
      runs.push_back(run);
    }
    const auto middle = runs.begin() + num_runs / 2;
    std::nth_element(runs.begin(), middle, runs.end(), [](const Timed& a, const Timed& b) {
      return a.seconds * a.peak.flops < b.seconds * b.peak.flops;
    });
    return *middle;
  }
  ThreadPool pool;
  Scratch scratch;
  ExecutionContext context;
  KernelTable kernels;
  CpuLevel level = CpuLevel::kRef;
};

// Bytes a second that one thread can read in order, four streams far beyond any cache.
inline double measure_read_bytes_per_second() {
  const Buffer<uint64_t> memory(int64_t{16} << 20);
  const int64_t quarter = memory.size() / 4;
  uint64_t keep = 0;
  const double seconds = median_cpu_seconds(5, [&] {
    uint64_t sums[4] = {};
    for (int64_t i = 0; i < quarter; i += 8)  // a word a line
      for (int64_t s = 0; s < 4; ++s) sums[s] += memory.data()[s * quarter + i];
    keep += sums[0] + sums[1] + sums[2] + sums[3];
  });
  asm volatile("" : : "r"(keep) : "memory");
  return static_cast<double>(memory.size_bytes()) / seconds;
}

// Random bytes without the NaN codes of e4m3; scales near 2^-12.
inline Buffer<uint8_t> random_codes(int64_t size, uint64_t seed) {
  Buffer<uint8_t> bytes(size);
  Rng rng(seed);
  for (uint8_t& b : bytes) {
    const uint32_t r = rng.next_u32() & 0xFF;
    b = static_cast<uint8_t>((r & 0x7F) == 0x7F ? r - 1 : r);
  }
  return bytes;
}
inline Buffer<uint8_t> random_scales(int64_t size, uint64_t seed) {
  Buffer<uint8_t> bytes(size);
  Rng rng(seed);
  for (uint8_t& b : bytes) b = static_cast<uint8_t>(112 + rng.below(6));
  return bytes;
}
inline Buffer<bf16> random_values(int64_t size, uint64_t seed) {
  Buffer<bf16> values(size);
  Rng rng(seed);
  for (bf16& v : values) v = to_bf16(rng.uniform() * 2 - 1);
  return values;
}

// Several weight matrices of one shape, walked in turn so that none is found in a cache.
class WeightSet {
 public:
  enum class Kind { kFp8, kFp4, kBf16 };
  WeightSet(Kind kind, int64_t out, int64_t in, int count, WeightLayout layout = WeightLayout::kRows)
      : kind_(kind), layout_(layout) {
    for (int i = 0; i < count; ++i) {
      const uint64_t seed = static_cast<uint64_t>(i);
      if (kind == Kind::kBf16) {
        values_.push_back(random_values(out * in, seed));
        weights_.emplace_back(Bf16Matrix{values_.back().data(), out, in});
        continue;
      }
      const bool fp8 = kind == Kind::kFp8;
      codes_.push_back(random_codes(fp8 ? out * in : out * in / 2, seed));
      scales_.push_back(random_scales(num_scale_blocks(in) * (fp8 ? num_scale_blocks(out) : out), seed));
      // Random bytes are as good in one layout as in the other.
      if (fp8) weights_.emplace_back(Fp8Matrix{codes_.back().data(), scales_.back().data(), out, in, layout});
      else weights_.emplace_back(Fp4Matrix{codes_.back().data(), scales_.back().data(), out, in, layout});
    }
  }
  const WeightMatrix& next() { return weights_[next_++ % weights_.size()]; }
  bool rounds() const { return kind_ != Kind::kBf16; }
  const char* name() const {
    constexpr const char* kNames[2][3] = {{"fp8", "fp4", "bf16"}, {"fp8 in planes", "fp4 in planes", "bf16"}};
    return kNames[layout_ == WeightLayout::kPlanes][static_cast<int>(kind_)];
  }

 private:
  Kind kind_;
  WeightLayout layout_;
  std::vector<Buffer<uint8_t>> codes_, scales_;
  std::vector<Buffer<bf16>> values_;
  std::vector<WeightMatrix> weights_;
  size_t next_ = 0;
};

// Seconds of a peer's cases, by "<dtype> <n>x<k>" or "<dtype> <n>x<k> M=<m>": bench/peers/kernel_peers.py, which builds
// it at the first run. Empty where it cannot be had.
inline std::map<std::string, double> run_kernel_peer(const std::string& arguments) {
  std::map<std::string, double> seconds;
  const std::string command = "python3 " DEEPINFER_TESTDATA "/../bench/peers/kernel_peers.py " + arguments;
  std::FILE* pipe = popen(command.c_str(), "r");
  if (!pipe) return seconds;
  char line[512];
  while (std::fgets(line, sizeof line, pipe)) {
    const Result<Json> json = parse_json(line);
    if (!json.ok() || !json.value().find("seconds")) continue;
    const auto number = [&](const char* name) { return std::to_string(json.value().find(name)->as_int()); };
    std::string name = json.value().find("dtype")->as_string() + " " + number("n") + "x" + number("k");
    if (json.value().find("m")) name += " M=" + number("m");
    seconds[name] = json.value().find("seconds")->as_double();
  }
  if (pclose(pipe) != 0) std::fprintf(stderr, "the peer did not run: %s\n", command.c_str());
  return seconds;
}

}  // namespace deepinfer::bench_ops
