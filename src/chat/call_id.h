// SPDX-License-Identifier: MIT
// Ids of tool calls, the same in every protocol: "call_" + two-digit index + "_" + optional "ET_" + 20 random
// characters + four checksum digits (XXH3-64 of the id so far without underscores, modulo 10000). The client gives the
// id back with its next request; the mark "ET" then says that the call came without any reasoning.
// Source: chat.md 5 and 3.1. Any thread; no state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/philox.h"

namespace deepinfer {

// Appends a fresh id. The random part is drawn from `rng`.
void append_call_id(std::string& out, uint32_t call_idx, bool is_thinking_empty, Rng& rng);

// True when the checksum at the end of `id` fits; ids of other makers almost never do.
bool has_call_id_checksum(std::string_view id);

// True for an id that carries the empty-thinking mark: "ET_" at bytes 8-10, or "ET" at 6-7 where a client removed the
// underscores.
bool has_empty_thinking_mark(std::string_view id);

}  // namespace deepinfer
