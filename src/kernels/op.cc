// SPDX-License-Identifier: MIT
#include "kernels/op.h"

#include <fmt/format.h>

#include <cstdio>

namespace deepinfer {

Cost& Cost::operator+=(const Cost& other) {
  flops += other.flops;
  bytes_read += other.bytes_read;
  bytes_written += other.bytes_written;
  launches += other.launches;
  return *this;
}

const char* to_string(Backend backend) {
  constexpr const char* kNames[] = {"ref", "cpu", "cuda", "ascend"};
  return kNames[static_cast<int>(backend)];
}

void refuse_launch(const char* op, const Status& status) {
  std::fprintf(stderr, "%s: %s\n", op, status.message().c_str());
  check_failed("op parameters fit together", __FILE__, __LINE__);
}

bool row_fits(Backend backend, CpuLevel level, const Target& target) {
  if (backend == Backend::kRef) return target.backend == Backend::kRef || target.backend == Backend::kCpu;
  return backend == target.backend && (backend != Backend::kCpu || level <= target.level);
}

Status no_row_fits(const char* op, const std::string& offered, const Target& target) {
  const std::string level = target.backend == Backend::kCpu ? fmt::format(" at level {}", to_string(target.level)) : "";
  return unimplemented(fmt::format("{}: needed backend {}{}; rows offered: {}", op, to_string(target.backend), level,
                                   offered.empty() ? "none" : offered));
}

}  // namespace deepinfer
