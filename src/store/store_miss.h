// SPDX-License-Identifier: MIT
// Why a lookup or a read ended where it did. Every miss has exactly one reason.
#pragma once

#include <string_view>

namespace deepinfer {

enum class StoreMiss {
  kNone,         // everything that was asked for is there
  kNeverStored,  // no extent holds the next block, and none did as far as the store remembers
  kExpired,      // its segment was dropped: its time to live passed, or the store was over-full
  kNodeLost,     // fewer shards answered than decoding needs
  kChecksum,     // bytes were damaged, and too few whole shards are left
  kLayout,       // written in another layout or by another model revision or cache format
  kTenant,       // the tenant's data was deleted, or the record belongs to another tenant
  kReplay,       // the next block was computed behind a fast replay and exact results are wanted (decision 14)
};
inline constexpr int kNumStoreMisses = 8;

constexpr std::string_view to_string(StoreMiss miss) {
  constexpr std::string_view kNames[kNumStoreMisses] = {"none",     "never_stored", "expired", "node_lost",
                                                        "checksum", "layout",       "tenant",  "replay"};
  return kNames[static_cast<int>(miss)];
}

}  // namespace deepinfer
