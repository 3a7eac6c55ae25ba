// SPDX-License-Identifier: MIT
#include "store/ttl.h"

namespace deepinfer {
namespace {
constexpr std::string_view kNames[kNumTtlClasses] = {"agent", "chat", "tail"};
}

std::string_view to_string(TtlClass ttl_class) { return kNames[static_cast<int>(ttl_class)]; }

std::optional<TtlClass> ttl_class_named(std::string_view name) {
  for (int i = 0; i < kNumTtlClasses; ++i)
    if (kNames[i] == name) return static_cast<TtlClass>(i);
  return std::nullopt;
}

std::optional<size_t> oldest_segment(std::span<const SegmentAge> segments, const TtlPolicy& policy, int64_t unix_ns) {
  std::optional<size_t> oldest;
  double most = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    const double share = policy.age_share(segments[i].ttl_class, segments[i].bucket, unix_ns);
    if (oldest && share <= most) continue;
    oldest = i;
    most = share;
  }
  return oldest;
}

}  // namespace deepinfer
