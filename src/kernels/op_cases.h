// SPDX-License-Identifier: MIT
// What op tests share: golden vectors, random inputs, and running a case on every row of a backend table that this
// machine can run, with one thread and with two, and on its device. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/philox.h"
#include "kernels/op.h"
#include "tensor/bfloat16.h"
#include "tensor/packed_matrix.h"
#include "tensor/plane_layout.h"
#include "tensor/safetensors.h"

namespace deepinfer::testing_ops {

// Golden vectors of testdata/units.
class Golden {
 public:
  explicit Golden(const std::string& file) {
    Result<SafetensorsFile> read = SafetensorsFile::read(std::string(DEEPINFER_TESTDATA) + "/units/" + file);
    if (!read.ok()) ADD_FAILURE() << read.status().message();
    file_ = std::make_unique<SafetensorsFile>(std::move(read).value());
  }
  template <typename T>
  std::vector<T> raw(const std::string& name) const {
    const TensorInfo* info = file_->find(name);
    if (!info) ADD_FAILURE() << "no golden tensor " << name;
    const auto bytes = file_->bytes(*info);
    std::vector<T> values(bytes.size() / sizeof(T));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }
  std::vector<int64_t> shape(const std::string& name) const { return file_->find(name)->shape; }

 private:
  std::unique_ptr<SafetensorsFile> file_;
};

inline const Golden& units() {
  static const Golden golden("units.safetensors");
  return golden;
}

// The device that device rows are tested on, null where there is none. The heap of the test lies in page-locked memory
// then (cmake/pinned_heap.cc), so the cases' own vectors serve as device memory.
inline Device* test_device() {
  static const std::unique_ptr<Device> device = [] {
    auto opened = open_cuda_device({.waits_after_each_op = true});
    return opened.ok() ? std::move(opened).value() : nullptr;
  }();
  return device.get();
}

// Calls run(row, context) for each row of the host, first serially, then with two threads.
template <typename Params, typename Run>
void on_every_host_row(KernelRows<Params> rows, const Run& run) {
  Scratch scratch;
  ThreadPool pool(2);
  for (const KernelRow<Params>& row : rows) {
    if (!row_fits(row, {Backend::kCpu, machine_cpu_level()})) continue;
    for (ThreadPool* threads : {static_cast<ThreadPool*>(nullptr), &pool}) {
      SCOPED_TRACE(std::string(row.name) + (threads ? " two threads" : ""));
      run(row, ExecutionContext{threads, &scratch});
    }
  }
}

// Calls run(row, context) for each row this machine can run: on the host first serially, then with two threads.
template <typename Params, typename Run>
void on_every_row(KernelRows<Params> rows, const Run& run) {
  on_every_host_row(rows, run);
  if (!test_device()) return;
  Scratch device_scratch(test_device()->memory());
  for (const KernelRow<Params>& row : rows) {
    if (!row_fits(row, {.backend = Backend::kCuda, .is_exact = false})) continue;
    SCOPED_TRACE(row.name);
    run(row, ExecutionContext{.scratch = &device_scratch, .device = test_device()});
    ASSERT_TRUE(test_device()->status().ok()) << test_device()->status().message();
  }
}

inline float value_of(bf16 x) { return to_float(x); }
inline float value_of(float x) { return x; }

// For rows whose sums run in another order (decision 27): a bf16 step, or 2^-13 of fp32 results, at the magnitude of
// the largest result; it stands for the sum of absolute products, which is larger.
template <typename Out>
void expect_within_tolerance(const std::vector<Out>& actual, const std::vector<Out>& expected) {
  if constexpr (std::is_same_v<Out, bf16> || std::is_same_v<Out, float>) {
    float largest = 0, worst = 0;
    for (const Out& x : expected) largest = std::max(largest, std::fabs(value_of(x)));
    for (size_t i = 0; i < expected.size(); ++i) {
      const float difference = std::fabs(value_of(actual[i]) - value_of(expected[i]));
      worst = std::isnan(difference) ? INFINITY : std::max(worst, difference);
    }
    EXPECT_LE(worst, largest * (std::is_same_v<Out, bf16> ? 0x1p-7f : 0x1p-13f));
  }
}

// Runs params built by `make(out)` on every row into fresh output and expects the bytes of the first row (ref).
template <typename Params, typename Out, typename Make>
void expect_rows_agree(KernelRows<Params> rows, const std::vector<Out>& initial, const Make& make) {
  std::vector<Out> expected;
  on_every_row<Params>(rows, [&](const KernelRow<Params>& row, const ExecutionContext& context) {
    std::vector<Out> out = initial;
    const Params params = make(out);
    const Status status = check(params);
    ASSERT_TRUE(status.ok()) << status.message();
    row.launch(context, params);
    if (expected.empty()) expected = out;
    if (!row.is_exact) return expect_within_tolerance(out, expected);
    int64_t differing = 0, first = -1;
    for (size_t i = 0; i < out.size(); ++i)
      if (std::memcmp(&out[i], &expected[i], sizeof(Out)) != 0 && differing++ == 0) first = static_cast<int64_t>(i);
    EXPECT_EQ(differing, 0) << "first at " << first << " of " << out.size();
  });
}

inline std::vector<bf16> random_bf16(Rng& rng, int64_t size, float scale) {
  std::vector<bf16> values(static_cast<size_t>(size));
  for (bf16& v : values) v = to_bf16((rng.uniform() + rng.uniform() + rng.uniform() - 1.5f) * 2 * scale);
  return values;
}
inline std::vector<float> random_f32(Rng& rng, int64_t size, float scale) {
  std::vector<float> values(static_cast<size_t>(size));
  for (float& v : values) v = (rng.uniform() + rng.uniform() + rng.uniform() - 1.5f) * 2 * scale;
  return values;
}
// e4m3 codes without NaN, or any bytes.
inline std::vector<uint8_t> random_e4m3(Rng& rng, int64_t size) {
  std::vector<uint8_t> values(static_cast<size_t>(size));
  for (uint8_t& v : values) do
      v = static_cast<uint8_t>(rng.next_u32());
    while ((v & 0x7F) == 0x7F);
  return values;
}
inline std::vector<uint8_t> random_bytes(Rng& rng, int64_t size, uint32_t low, uint32_t high) {
  std::vector<uint8_t> values(static_cast<size_t>(size));
  for (uint8_t& v : values) v = static_cast<uint8_t>(low + rng.below(high - low));
  return values;
}

// Distance in representable bf16 numbers.
inline int64_t bf16_steps(bf16 a, bf16 b) {
  const auto ordered = [](bf16 x) { return x.bits & 0x8000 ? -int64_t{x.bits & 0x7FFF} : int64_t{x.bits}; };
  return std::abs(ordered(a) - ordered(b));
}

// At most one element in a thousand (and one in all) may differ, by one bf16 step.
inline void expect_near_exact(const std::vector<bf16>& actual, const std::vector<bf16>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  size_t differing = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    differing += actual[i].bits != expected[i].bits && !(to_float(actual[i]) == 0 && to_float(expected[i]) == 0);
    EXPECT_LE(bf16_steps(actual[i], expected[i]), 1)
        << i << ": " << to_float(actual[i]) << " expected " << to_float(expected[i]);
  }
  EXPECT_LE(differing, 1 + actual.size() / 1000);
}

inline void expect_close(const std::vector<float>& actual, const std::vector<float>& expected, float relative) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_NEAR(actual[i], expected[i], relative * std::max(1e-3f, std::fabs(expected[i]))) << i;
}

// Packed weights that own their bytes.
struct OwnedWeights {
  std::vector<uint8_t> codes, scales;
  std::vector<bf16> values;
  Fp8Matrix fp8;
  Fp4Matrix fp4;
  Bf16Matrix matrix;
};
inline OwnedWeights random_fp8(Rng& rng, int64_t out, int64_t in) {
  OwnedWeights w{.codes = random_e4m3(rng, out * in),
                 .scales = random_bytes(rng, num_scale_blocks(out) * num_scale_blocks(in), 112, 122)};
  w.fp8 = {w.codes.data(), w.scales.data(), out, in};
  return w;
}
inline OwnedWeights random_fp4(Rng& rng, int64_t out, int64_t in) {
  OwnedWeights w{.codes = random_bytes(rng, out * in / 2, 0, 256),
                 .scales = random_bytes(rng, out * (in / 32), 112, 122)};
  w.fp4 = {w.codes.data(), w.scales.data(), out, in};
  return w;
}
inline OwnedWeights random_bf16_matrix(Rng& rng, int64_t out, int64_t in) {
  OwnedWeights w{.values = random_bf16(rng, out * in, 0.1f)};
  w.matrix = {w.values.data(), out, in};
  return w;
}
// The same values in planes, in memory of just that size.
inline OwnedWeights in_planes(const OwnedWeights& w) {
  OwnedWeights turned{.codes = std::vector<uint8_t>(w.codes.size()), .scales = w.scales};
  if (w.fp8.codes) {
    for (int64_t g = 0; g < w.fp8.out / 32; ++g) turn_group(w.fp8, g, turned.codes.data() + g * 32 * w.fp8.in);
    turned.fp8 = {turned.codes.data(), turned.scales.data(), w.fp8.out, w.fp8.in, WeightLayout::kPlanes};
  } else {
    for (int64_t g = 0; g < w.fp4.out / 32; ++g)
      turn_group(w.fp4, g, turned.codes.data() + g * 16 * w.fp4.in, turned.scales.data() + g * w.fp4.in);
    turned.fp4 = {turned.codes.data(), turned.scales.data(), w.fp4.out, w.fp4.in, WeightLayout::kPlanes};
  }
  return turned;
}

}  // namespace deepinfer::testing_ops
