// SPDX-License-Identifier: MIT
// A bench `foo` is a file foo_bench.cc that defines `Status bench_foo(const BenchOptions&, BenchReport&)` in namespace
// deepinfer; `deepinfer bench foo` runs it. A row states what was measured, the ceiling measured in the same run, and
// the share reached; benches never decide a test.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"

namespace deepinfer {

struct BenchOptions {
  bool peer = false;   // also run the named competitor
  bool quick = false;  // smallest case only, for smoke runs
  int num_threads = 1;
  std::string model;                         // checkpoint folder where the bench needs one; empty = its default
  std::map<std::string, std::string> extra;  // --set key=value
};

struct BenchPeer {
  std::string name;
  double value = 0;  // in the unit of the row; zero is a figure, too
};

struct BenchRow {
  std::string name;  // case, e.g. "fp4 2304x5120 M=1"
  double value = 0;
  std::string unit;               // "GB/s", "tokens/s", "us"
  double ceiling = 0;             // same unit, the least for a time; 0 = none stated
  std::string ceiling_name;       // "triad", "fma"
  std::optional<BenchPeer> peer;  // none: not run
  std::string note;
};

class BenchReport {
 public:
  // Prints the row at once (stdout) and keeps it for --csv.
  void add(BenchRow row);
  const std::vector<BenchRow>& rows() const { return rows_; }
  // Whether it could be written: asked before a bench that takes long. What is there stays.
  static Status check_csv(const std::string& path);
  Status write_csv(const std::string& path, const std::string& bench, const std::string& header_note) const;

 private:
  std::vector<BenchRow> rows_;
};

struct BenchTarget {
  const char* name;
  Status (*run)(const BenchOptions& options, BenchReport& report);
};

// Median seconds of `num_runs` calls after one warm-up, by the clock.
double median_seconds(int num_runs, const std::function<void()>& body);
// The same in CPU time of the calling thread: what work that runs on one thread takes, whoever else uses the machine.
double median_cpu_seconds(int num_runs, const std::function<void()>& body);
double thread_cpu_seconds();
double clock_seconds();  // from an arbitrary start
// Ceilings of this machine, measured now: bytes/s of a triad over arrays far beyond the last cache (one thread, in its
// CPU time).
double measure_triad_bytes_per_second();

}  // namespace deepinfer
