// SPDX-License-Identifier: MIT
// What the service takes from the environment: keys, which on a command line every user of the machine could read; and
// the form of an option's value.
#pragma once

#include <optional>
#include <string>

#include "base/status.h"
#include "serve/api_keys.h"

namespace deepinfer {

// DEEPINFER_API_KEY: a key named "environment", without limits, not for the admin port. Read once, at start.
std::optional<ApiKey> api_key_of_environment();
// DEEPINFER_ADMIN_KEY; empty when it is not set.
std::string admin_key_of_environment();

// Whether --cors-origin names an origin as browsers send it: anything else would never match. Errors: invalid_argument.
Status check_origin(const std::string& origin);

}  // namespace deepinfer
