// SPDX-License-Identifier: MIT
// Identities that must not mix are types. `index(id)` gives the number back.
#pragma once

#include <cstdint>
#include <type_traits>

namespace deepinfer {

using TokenId = int32_t;  // crosses every file format and kernel as int32, so it stays a plain number
enum class SequenceId : uint64_t {};
enum class BlockId : uint32_t {};
enum class ExpertId : uint32_t {};
enum class RankId : uint32_t {};

template <typename Id>
constexpr std::underlying_type_t<Id> index(Id id) {
  return static_cast<std::underlying_type_t<Id>>(id);
}

}  // namespace deepinfer
