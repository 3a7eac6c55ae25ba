// SPDX-License-Identifier: MIT
// oneDNN's matmul on dequantised weights, one thread: y[M, N] = x[M, K] w[N, K]^T in f32 and, where the machine has the
// instructions, bf16. Prints one JSON object a line: {"peer", "dtype", "m", "n", "k", "seconds", "implementation"}.
// Usage: onednn_gemm M N K [M N K ...]
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "oneapi/dnnl/dnnl.hpp"

namespace {

using dnnl::memory;

double cpu_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void run(const dnnl::engine& engine, memory::data_type type, const char* name, long m, long n, long k) {
  dnnl::stream stream(engine);
  const memory::desc x({m, k}, type, memory::format_tag::ab), any({k, n}, type, memory::format_tag::any),
      y({m, n}, type, memory::format_tag::ab);
  const dnnl::matmul::primitive_desc descriptor(engine, x, any, y);
  memory a(descriptor.src_desc(), engine), b(descriptor.weights_desc(), engine), c(descriptor.dst_desc(), engine);
  for (memory* each : {&a, &b, &c}) {
    auto* bytes = static_cast<unsigned char*>(each->get_data_handle());
    for (size_t i = 0; i < each->get_desc().get_size(); ++i) bytes[i] = i % 2 ? 0x3C : 0x10;  // small numbers
  }
  const dnnl::matmul matmul(descriptor);
  std::vector<double> seconds;
  for (int run = 0; run < 6; ++run) {
    const double begin = cpu_seconds();
    matmul.execute(stream, {{DNNL_ARG_SRC, a}, {DNNL_ARG_WEIGHTS, b}, {DNNL_ARG_DST, c}});
    stream.wait();
    if (run > 0) seconds.push_back(cpu_seconds() - begin);
  }
  std::sort(seconds.begin(), seconds.end());
  std::printf("{\"peer\": \"oneDNN\", \"dtype\": \"%s\", \"m\": %ld, \"n\": %ld, \"k\": %ld, \"seconds\": %.9g, "
              "\"implementation\": \"%s\"}\n",
              name, m, n, k, seconds[seconds.size() / 2], descriptor.impl_info_str());
}

}  // namespace

int main(int count, char** values) {
  const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  for (int i = 1; i + 2 < count; i += 3) {
    const long m = std::atol(values[i]), n = std::atol(values[i + 1]), k = std::atol(values[i + 2]);
    run(engine, memory::data_type::f32, "f32", m, n, k);
    run(engine, memory::data_type::bf16, "bf16", m, n, k);
  }
}
