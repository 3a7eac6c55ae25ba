// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace deepinfer {

// Version, commit, compiled backends, CPU features found; several lines.
std::string version_text();

}  // namespace deepinfer
