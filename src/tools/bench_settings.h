// SPDX-License-Identifier: MIT
// The `--set KEY=VALUE` of `deepinfer bench` whose values are words that several benches share.
#pragma once

#include <string>

#include "base/status.h"

namespace deepinfer {

// Other keys are the bench's own and pass. Errors: invalid_argument with the known values, and for a CPU level that
// this machine does not have: a bench would run on another one without a word.
Status check_bench_setting(const std::string& key, const std::string& value);

}  // namespace deepinfer
