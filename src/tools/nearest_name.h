// SPDX-License-Identifier: MIT
// Suggestions for misspelt names.
#pragma once

#include <string>
#include <vector>

namespace deepinfer {

// "; did you mean --threads?" for the closest known name, empty when nothing is close (more than a third of it
// differs).
std::string did_you_mean(const std::string& name, const std::vector<std::string>& known);

}  // namespace deepinfer
