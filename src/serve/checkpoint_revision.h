// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace deepinfer {

// Names a checkpoint folder by its small files' bytes and its large files' sizes and times; empty for the embedded
// model, which the program's version names.
std::string checkpoint_revision(const std::string& folder);

}  // namespace deepinfer
