// SPDX-License-Identifier: MIT
// The list of subcommands: one declaration and one line each.
#include "tools/command.h"

namespace deepinfer {

Command bench_command();
Command chat_command();
Command completion_command();
Command convert_command();
Command decode_command();
Command doctor_command();
Command encode_command();
Command generate_command();
Command grammar_command();
Command inspect_command();
Command logits_command();
Command serve_command();
Command store_command();
Command tokenize_command();

std::vector<Command> all_commands() {
  return {
      serve_command(),    chat_command(),       generate_command(), encode_command(),  decode_command(),
      tokenize_command(), logits_command(),     inspect_command(),  doctor_command(),  bench_command(),
      grammar_command(),  completion_command(), store_command(),    convert_command(),
  };
}

}  // namespace deepinfer
