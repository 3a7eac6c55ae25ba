/* SPDX-License-Identifier: MIT
 * Prints what a compiled caller relies on besides the symbols; scripts/check_abi compares the lines with abi.txt. */
#include <stddef.h>
#include <stdio.h>

#include "deepinfer_engine.h"

#define MEMBER(name) printf("member deepinfer_engine_figures.%s %zu\n", #name, offsetof(deepinfer_engine_figures, name))

int main(void) {
  printf("struct deepinfer_engine_figures %zu\n", sizeof(deepinfer_engine_figures));
  MEMBER(done);
  MEMBER(prompt_tokens);
  MEMBER(output_tokens);
  printf("value DEEPINFER_ENGINE_ABI %d\n", DEEPINFER_ENGINE_ABI);
  return 0;
}
