// SPDX-License-Identifier: MIT
// The one value that the service takes from the environment: a key, which on a command line every user of the machine
// could read.
#pragma once

#include <optional>

#include "serve/api_keys.h"

namespace deepinfer {

// DEEPINFER_API_KEY: a key named "environment", without limits, not for the admin port. Read once, at start.
std::optional<ApiKey> api_key_of_environment();
// DEEPINFER_ADMIN_KEY; empty when it is not set.
std::string admin_key_of_environment();

}  // namespace deepinfer
