// SPDX-License-Identifier: MIT
// Rows gathered from an Engram table in a file: from the page cache, against plain random reads of the same lines in
// the same run; and from the disk, one fault after the other and with prefetch, against sixteen threads of pread.
// `--set file=PATH` names the table's file (made where it does not exist; default in the temporary folder),
// `--set mib=N` its size in MiB.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/bench.h"
#include "base/file.h"
#include "base/philox.h"
#include "engram/table.h"

namespace deepinfer {
namespace {

constexpr int64_t kColumns = 256, kScales = 8, kRowBytes = kColumns + kScales, kRowsPerToken = 24;

struct TableFile {
  std::string path;
  int64_t num_rows = 0;
  int64_t bytes() const { return num_rows * kRowBytes; }
};

// Bytes that are neither NaN scales nor all alike.
Status make_file(const TableFile& table) {
  std::error_code error;
  if (std::filesystem::file_size(table.path, error) == static_cast<uintmax_t>(table.bytes()) && !error) return {};
  std::FILE* file = std::fopen(table.path.c_str(), "wb");
  if (!file) return invalid_argument(table.path + ": cannot be written");
  std::vector<uint8_t> piece(size_t{1} << 20);
  for (size_t i = 0; i < piece.size(); ++i) piece[i] = static_cast<uint8_t>(100 + i * 2654435761u % 50);
  int64_t left = table.bytes();
  while (left > 0) {
    const size_t size = static_cast<size_t>(std::min<int64_t>(left, static_cast<int64_t>(piece.size())));
    if (std::fwrite(piece.data(), 1, size, file) != size) break;
    left -= static_cast<int64_t>(size);
  }
  if (std::fclose(file) != 0 || left > 0) return unavailable(table.path + ": the disk is full");
  return {};
}

void drop_from_cache(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return;
  ::fdatasync(file);
  ::posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  ::close(file);
}

std::vector<int64_t> random_rows(int64_t count, int64_t num_rows, uint64_t seed) {
  Rng rng(seed);
  std::vector<int64_t> rows(static_cast<size_t>(count));
  for (int64_t& row : rows) row = static_cast<int64_t>(rng.below(static_cast<uint64_t>(num_rows)));
  return rows;
}

// The lines of the same rows, summed: independent loads, as many under way as the core can hold.
uint64_t sum_lines(const uint8_t* codes, const uint8_t* scales, const std::vector<int64_t>& rows) {
  uint64_t sum = 0;
  for (const int64_t row : rows) {
    uint64_t word;
    for (int64_t i = 0; i < kColumns; i += 64) {
      std::memcpy(&word, codes + row * kColumns + i, 8);
      sum += word;
    }
    std::memcpy(&word, scales + row * kScales, 8);
    sum += word;
  }
  return sum;
}

double pread_rows_per_second(const std::string& path, const std::vector<int64_t>& rows, int64_t num_rows) {
  constexpr size_t kThreads = 16;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  std::atomic<size_t> next{0};
  const double begin = clock_seconds();
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      uint8_t row[kColumns];
      for (size_t i; (i = next.fetch_add(1)) < rows.size();)
        if (::pread(file, row, kColumns, rows[i] * kColumns) < 0 ||
            ::pread(file, row, kScales, num_rows * kColumns + rows[i] * kScales) < 0)
          return;
    });
  for (std::thread& thread : threads) thread.join();
  const double seconds = clock_seconds() - begin;
  ::close(file);
  return static_cast<double>(rows.size()) / seconds;
}

void bench_page_cache(const MappedEngramTable& table, const uint8_t* bytes, int num_runs, BenchReport& report) {
  const int64_t tokens = 512;
  const auto rows = random_rows(tokens * kRowsPerToken, table.num_rows(), 1);
  const double size = static_cast<double>(rows.size()) * kRowBytes;
  std::vector<uint8_t> codes(rows.size() * kColumns), scales(rows.size() * kScales);
  Status status = table.read_rows(rows, codes.data(), scales.data());  // into the page cache
  uint64_t keep = 0;
  const double bound =
      median_cpu_seconds(num_runs, [&] { keep += sum_lines(bytes, bytes + table.num_rows() * kColumns, rows); });
  asm volatile("" : : "r"(keep) : "memory");
  const double seconds =
      median_cpu_seconds(num_runs, [&] { status = table.read_rows(rows, codes.data(), scales.data()); });
  report.add({.name = "page cache, 24 rows a token",
              .value = size / seconds / 1e9,
              .unit = "GB/s",
              .ceiling = size / bound / 1e9,
              .ceiling_name = "random reads of the same lines",
              .note = fmt::format("{:.2f} us a token of {} B{}", seconds / tokens * 1e6, kRowsPerToken * kRowBytes,
                                  status.ok() ? "" : ", " + status.message())});
}

void bench_disk(const MappedEngramTable& table, const TableFile& file, BenchReport& report) {
  const auto measure = [&](bool prefetch, uint64_t seed) {
    const auto rows = random_rows(kRowsPerToken * 64, table.num_rows(), seed);
    std::vector<uint8_t> codes(rows.size() * kColumns), scales(rows.size() * kScales);
    drop_from_cache(file.path);
    const double begin = clock_seconds();
    if (prefetch) table.prefetch(rows);
    const Status status = table.read_rows(rows, codes.data(), scales.data());
    return status.ok() ? static_cast<double>(rows.size()) / (clock_seconds() - begin) : 0;
  };
  const auto rows = random_rows(kRowsPerToken * 64, table.num_rows(), 7);
  drop_from_cache(file.path);
  const double bound = pread_rows_per_second(file.path, rows, table.num_rows());
  for (const bool prefetch : {false, true})
    report.add({.name = prefetch ? "disk, prefetched" : "disk, one fault after the other",
                .value = measure(prefetch, prefetch ? 8 : 9),
                .unit = "rows/s",
                .ceiling = bound,
                .ceiling_name = "pread, 16 threads"});
}

}  // namespace

Status bench_engram(const BenchOptions& options, BenchReport& report) {
  const auto file_option = options.extra.find("file"), size_option = options.extra.find("mib");
  const int64_t mib = size_option != options.extra.end() ? std::atoll(size_option->second.c_str())
                      : options.quick                    ? 16
                                                         : 2048;
  if (mib < 1 || mib > int64_t{1} << 24) return invalid_argument("--set mib=: expected 1..16777216");
  const bool is_own = file_option == options.extra.end();
  const TableFile file{
      is_own ? (std::filesystem::temp_directory_path() / fmt::format("deepinfer_engram_bench_{}", ::getpid())).string()
             : file_option->second,
      mib * (1 << 20) / kRowBytes};
  TRY(make_file(file));
  {
    ASSIGN_OR_RETURN(const MappedFile map, MappedFile::open(file.path));
    const uint8_t* bytes = map.bytes().data();
    const MappedEngramTable table("bench", bytes, bytes + file.num_rows * kColumns, file.num_rows, kColumns);
    bench_disk(table, file, report);
    bench_page_cache(table, bytes, options.quick ? 1 : 5, report);
  }
  std::error_code ignored;
  if (is_own) std::filesystem::remove(file.path, ignored);
  return {};
}

}  // namespace deepinfer
