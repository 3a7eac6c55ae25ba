// SPDX-License-Identifier: MIT
// The store's figures as JSON, for the command line and the service, and as lines for people.
#pragma once

#include <string>

#include "base/json.h"
#include "store/block_store.h"

namespace deepinfer {

Json store_json(const BlockStore& store);
Json scrub_json(const ScrubReport& report);
std::string readable(const Json& json, const std::string& indent = "");  // "name  value" lines, nested ones indented

}  // namespace deepinfer
