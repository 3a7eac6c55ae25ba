// SPDX-License-Identifier: MIT
// Lifetimes (serving.md 9.9). Data lives in segments of one class and one hour; a segment is dropped as a whole when
// its hour's end plus the class's time to live has passed. No per-object state, so over-full means: oldest first,
// measured as a share of the class's time to live, which shortens all classes by the same factor. Thread: values.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace deepinfer {

enum class TtlClass : uint8_t { kAgent, kChat, kTail };
inline constexpr int kNumTtlClasses = 3;
std::string_view to_string(TtlClass ttl_class);
std::optional<TtlClass> ttl_class_named(std::string_view name);

inline constexpr int64_t kSecondNs = 1'000'000'000;
inline constexpr int64_t kHourNs = 3600 * kSecondNs;
inline constexpr int64_t kDayNs = 24 * kHourNs;

struct TtlPolicy {
  std::array<int64_t, kNumTtlClasses> ttl_ns = {3 * kDayNs, 7 * kDayNs, kHourNs / 2};  // agent, chat, tail records
  int64_t bucket_ns = kHourNs;
  int64_t slack_ns = 60 * kSecondNs;  // clocks of writers differ: nothing is dropped earlier than this after its time
  double renew_share = 0.25;          // of its time left: an extent that is hit below it is copied forward

  int64_t bucket_of(int64_t unix_ns) const { return unix_ns / bucket_ns; }
  int64_t expiry_ns(TtlClass c, int64_t bucket) const { return (bucket + 1) * bucket_ns + ttl(c); }
  bool is_expired(TtlClass c, int64_t bucket, int64_t unix_ns) const {
    return unix_ns > expiry_ns(c, bucket) + slack_ns;
  }
  bool wants_renewal(TtlClass c, int64_t bucket, int64_t unix_ns) const {
    return static_cast<double>(expiry_ns(c, bucket) - unix_ns) < renew_share * static_cast<double>(ttl(c));
  }
  // Age as a share of the time to live: 1 at expiry.
  double age_share(TtlClass c, int64_t bucket, int64_t unix_ns) const {
    return 1.0 - static_cast<double>(expiry_ns(c, bucket) - unix_ns) / static_cast<double>(ttl(c));
  }
  int64_t ttl(TtlClass c) const { return ttl_ns[static_cast<size_t>(c)]; }
};

struct SegmentAge {
  TtlClass ttl_class{};
  int64_t bucket = 0;
};
// Position of the segment that an over-full store drops next; nullopt when there is none.
std::optional<size_t> oldest_segment(std::span<const SegmentAge> segments, const TtlPolicy& policy, int64_t unix_ns);

// The share of its time to live that data really gets: 1, or less after the store was over-full.
class EffectiveTtl {
 public:
  // A segment was dropped before its time, at this share of it.
  void dropped_early(double age_share) { share_ = age_share < 1 ? age_share : 1; }
  // The oldest live segment has this share: what was cut once grows back as data gets older again.
  void observe_oldest(double age_share) {
    if (age_share > share_) share_ = age_share < 1 ? age_share : 1;
  }
  double share() const { return share_; }

 private:
  double share_ = 1;
};

}  // namespace deepinfer
