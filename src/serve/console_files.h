// SPDX-License-Identifier: MIT
// The web console's files, compiled into the program (cmake/console.cmake). Immutable; any thread.
#pragma once

#include <span>
#include <string_view>

namespace deepinfer {

struct ConsoleFile {
  std::string_view path;  // as requested: "/", "/console.js"
  std::string_view content_type;
  std::string_view bytes;
};

std::span<const ConsoleFile> console_files();  // generated

}  // namespace deepinfer
