// SPDX-License-Identifier: MIT
// What every op shares: the context it runs in, its cost, its backend table and the choice of a row from it.
//
// An op is a folder `kernels/<op>/`: `<op>.h` declares Params (plain structs of Views), `check(params)`,
// `estimate(params)` and `<op>_rows()`, the backend table; `ref/` is the definition; other folders add rows. A row is
// chosen once, at load
// (`resolve`), and then called as a function. Every row that is_exact gives the same bits as `ref`: sums follow the
// fixed lane order of kernels/lanes/lanes.h, so a result depends on neither batch, chunk nor thread count, nor on the
// level chosen. Thread: one launcher at a time per context; the pool's threads work inside a launch only.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/thread_pool.h"
#include "tensor/cpu_features.h"
#include "tensor/device.h"
#include "tensor/scratch.h"
#include "tensor/view.h"

namespace deepinfer {

namespace dim {
DIM(lanes);
DIM(slots);
DIM(assignments);
DIM(choices);
}  // namespace dim

inline constexpr int32_t kNoEntry = -1;  // pads a list of entries, groups or blocks at its end
inline constexpr int64_t kSkipRow = -1;  // as an offset: this row is not written

struct OpProfile;  // op_profile.h

struct ExecutionContext {
  ThreadPool* pool = nullptr;    // null: everything on the calling thread
  Scratch* scratch = nullptr;    // required; in the memory of the device
  OpProfile* profile = nullptr;  // benches on the host: what each op takes
  Device* device = nullptr;      // null: the host. Else views show its memory and a launch returns before it is done
  int num_threads() const { return pool ? pool->num_threads() : 1; }
  bool is_on_host() const { return !device || device->is_host(); }
};

// Arithmetic of an op by count, not by clock.
struct Cost {
  double flops = 0, bytes_read = 0, bytes_written = 0;
  int launches = 1;
  Cost& operator+=(const Cost& other);
};

enum class Backend { kRef, kCpu, kCuda, kAscend };
const char* to_string(Backend backend);

// What the machine offers: rows of `backend` up to `level` and, on the host, rows of kRef.
struct Target {
  Backend backend = Backend::kCpu;
  CpuLevel level = CpuLevel::kRef;  // CpuLevel::kRef on kCpu means the reference rows only
  bool is_exact = true;             // only rows that give the reference's bits
};

template <typename Params>
using Launch = void (*)(const ExecutionContext& context, const Params& params);

template <typename Params>
struct KernelRow {
  const char* name;  // "ref", "cpu/avx2", "cuda/sm90"
  Backend backend;
  CpuLevel level;         // least level of a kCpu row
  const char* needs;      // CPU features or device, in words
  Launch<Params> launch;  // of a device row: null where the build has no such backend (kernels/cuda_absent.cc)
  bool is_exact = true;   // false: sums run in another order, within the tolerance of decision 27
};
inline constexpr const char* kNeedsSm90 = "an NVIDIA GPU of compute capability 9.0";
template <typename Params>
using KernelRows = std::span<const KernelRow<Params>>;

[[noreturn]] void refuse_launch(const char* op, const Status& status);

double profile_seconds();
// A call from `begin` to `end` (profile_seconds()).
void add_to_profile(OpProfile& profile, const char* op, double begin, double end, const Cost& cost);

// A row once chosen. Calling it checks the params (a wrong shape is a bug of the caller and aborts with the message).
// An op that can be misused by the values of its tables declares check_values(params) too: called where the host can
// read them.
template <typename Params>
struct Kernel {
  const char* op = nullptr;
  const char* name = nullptr;
  Launch<Params> launch = nullptr;
  void operator()(const ExecutionContext& context, const Params& params) const {
    if (!context.profile || !context.is_on_host()) return check_and_launch(context, params);
    const double begin = profile_seconds();
    check_and_launch(context, params);
    const double end = profile_seconds();
    add_to_profile(*context.profile, op, begin, end, estimate(params));
  }

 private:
  void check_and_launch(const ExecutionContext& context, const Params& params) const {
    if (const Status status = check(params); !status.ok()) refuse_launch(op, status);
    if constexpr (requires { check_values(params); })
      if (context.is_on_host())
        if (const Status status = check_values(params); !status.ok()) refuse_launch(op, status);
    launch(context, params);
  }
};

bool row_fits(Backend backend, CpuLevel level, const Target& target);
template <typename Params>
bool is_built(const KernelRow<Params>& row) {
  return row.launch || row.backend == Backend::kRef || row.backend == Backend::kCpu;
}
template <typename Params>
bool row_fits(const KernelRow<Params>& row, const Target& target) {
  return is_built(row) && (row.is_exact || !target.is_exact) && row_fits(row.backend, row.level, target);
}
Status no_row_fits(const char* op, const std::string& offered, const Target& target);

// The last row of the table that fits the target (tables are written from `ref` to the most special row). Errors:
// unimplemented, saying what was needed and what each row offers.
template <typename Params>
Result<Kernel<Params>> resolve(const char* op, KernelRows<Params> rows, const Target& target) {
  const KernelRow<Params>* best = nullptr;
  std::string offered;
  for (const KernelRow<Params>& row : rows) {
    if (row_fits(row, target)) best = &row;
    offered += std::string(offered.empty() ? "" : ", ") + row.name + " (" + row.needs +
               (is_built(row) ? ")" : "; not in this build)");
  }
  if (!best) return no_row_fits(op, offered, target);
  return Kernel<Params>{op, best->name, best->launch};
}

// Runs body(item, worker) for each item; worker < num_threads() names a piece of scratch that no other call holds
// meanwhile. Items are fixed pieces of the work, chosen without regard to the number of threads. `work` in
// multiply-adds or bytes: small loops stay on the calling thread.
template <typename Body>
void for_each_item(const ExecutionContext& context, int64_t num_items, double work, const Body& body) {
  constexpr double kWorthWaking = 1 << 18;  // about 15 us of one core
  if (context.num_threads() == 1 || num_items == 1 || work < kWorthWaking) {
    for (int64_t i = 0; i < num_items; ++i) body(i, 0);
    return;
  }
  // Threads take runs of neighbouring items, so that each reads its weights in order; the last runs are short, lest all
  // wait for one.
  std::atomic<int64_t> next{0};
  const int64_t run_max = std::max<int64_t>(1, num_items / (8 * context.num_threads()));
  context.pool->parallel_for(context.num_threads(), [&](int64_t worker) {
    for (;;) {
      const int64_t left = num_items - next.load(std::memory_order_relaxed),
                    run = std::clamp<int64_t>(left / (2 * context.num_threads()), 1, run_max);
      const int64_t begin = next.fetch_add(run, std::memory_order_relaxed);
      if (begin >= num_items) return;
      for (int64_t i = begin; i < std::min(begin + run, num_items); ++i) body(i, static_cast<int>(worker));
    }
  });
}

}  // namespace deepinfer
