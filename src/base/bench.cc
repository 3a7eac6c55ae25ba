// SPDX-License-Identifier: MIT
#include "base/bench.h"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

namespace deepinfer {

void BenchReport::add(BenchRow row) {
  std::string line = fmt::format("{:<44} {:>12.4g} {:<10}", row.name, row.value, row.unit);
  if (row.ceiling > 0) {
    const bool is_time = row.unit == "s" || row.unit == "ms" || row.unit == "us" || row.unit == "ns";  // less is better
    const double share = is_time ? row.ceiling / row.value : row.value / row.ceiling;
    line += fmt::format(" {:5.1f}% of {:.4g} ({})", 100 * share, row.ceiling, row.ceiling_name);
  }
  if (row.peer) line += fmt::format("  {} {:.4g}", row.peer->name, row.peer->value);
  if (row.peer && row.peer->value > 0) line += fmt::format(" ({:.2f}x)", row.value / row.peer->value);
  if (!row.note.empty()) line += "  " + row.note;
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
  rows_.push_back(std::move(row));
}

Status BenchReport::check_csv(const std::string& path) {
  std::FILE* file = std::fopen(path.c_str(), "a");
  if (!file) return invalid_argument(fmt::format("--csv {}: {}", path, std::strerror(errno)));
  std::fclose(file);
  return {};
}

Status BenchReport::write_csv(const std::string& path, const std::string& bench, const std::string& header_note) const {
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (!file) return invalid_argument(fmt::format("--csv {}: {}", path, std::strerror(errno)));
  fmt::print(file, "# {} {}\nbench,case,value,unit,ceiling,ceiling_name,peer,peer_name,note\n", bench, header_note);
  for (const BenchRow& r : rows_) {
    const BenchPeer peer = r.peer.value_or(BenchPeer{});
    fmt::print(file, "{},\"{}\",{:.6g},{},{:.6g},{},{:.6g},{},\"{}\"\n", bench, r.name, r.value, r.unit, r.ceiling,
               r.ceiling_name, peer.value, peer.name, r.note);
  }
  const bool is_whole = std::fflush(file) == 0 && std::ferror(file) == 0;
  if (std::fclose(file) == 0 && is_whole) return {};
  return resource_exhausted(fmt::format("--csv {}: could not be written whole; is the disk full?", path));
}

namespace {

double median_of(int num_runs, double (*now)(), const std::function<void()>& body) {
  body();
  std::vector<double> seconds;
  for (int i = 0; i < num_runs; ++i) {
    const double start = now();
    body();
    seconds.push_back(now() - start);
  }
  std::nth_element(seconds.begin(), seconds.begin() + num_runs / 2, seconds.end());
  return seconds[static_cast<size_t>(num_runs / 2)];
}

}  // namespace

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double thread_cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double median_seconds(int num_runs, const std::function<void()>& body) {
  return median_of(num_runs, clock_seconds, body);
}
double median_cpu_seconds(int num_runs, const std::function<void()>& body) {
  return median_of(num_runs, thread_cpu_seconds, body);
}

double measure_triad_bytes_per_second() {
  constexpr size_t kNumElements = size_t{32} << 20;  // 3 x 128 MiB of float, beyond any last-level cache here
  std::vector<float> a(kNumElements, 0.f), b(kNumElements, 1.f), c(kNumElements, 2.f);
  const double seconds = median_cpu_seconds(5, [&] {
    for (size_t i = 0; i < kNumElements; ++i) a[i] = b[i] + 0.5f * c[i];
    asm volatile("" : : "r"(a.data()) : "memory");
  });
  return 3.0 * sizeof(float) * kNumElements / seconds;
}

}  // namespace deepinfer
