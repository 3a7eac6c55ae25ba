// SPDX-License-Identifier: MIT
#include "tools/command.h"
#include "tools/interrupt.h"

int main(int argc, char** argv) {
  deepinfer::install_interrupt_handler();
  return deepinfer::run_command_line(argc, argv, deepinfer::all_commands());
}
