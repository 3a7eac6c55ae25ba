// SPDX-License-Identifier: MIT
// The list of subcommands: one declaration and one line each.
#include "tools/command.h"

namespace deepinfer {

Command bench_command();

std::vector<Command> all_commands() {
  return {
      bench_command(),
  };
}

}  // namespace deepinfer
