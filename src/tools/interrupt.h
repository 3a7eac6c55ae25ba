// SPDX-License-Identifier: MIT
// Ctrl-C (SIGINT) and SIGTERM as a flag that long work polls; a second signal ends the program at once.
#pragma once

namespace deepinfer {

void install_interrupt_handler();
bool interrupted();
void clear_interrupt();  // for a terminal chat, where Ctrl-C stops the answer and not the program

}  // namespace deepinfer
