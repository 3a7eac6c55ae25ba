// SPDX-License-Identifier: MIT
// libFuzzer entry: one binary per folder; the environment-free choice of target is the first byte-independent argument
// --target=NAME, read in LLVMFuzzerInitialize.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/fuzz.h"

namespace deepinfer {
extern const FuzzTarget kFuzzTargetTable[];
}
static const deepinfer::FuzzTarget* chosen = deepinfer::kFuzzTargetTable;

extern "C" int LLVMFuzzerInitialize(int* argc, char*** argv) {
  for (int i = 1; i < *argc; ++i) {
    if (std::strncmp((*argv)[i], "--target=", 9) != 0) continue;
    for (chosen = deepinfer::kFuzzTargetTable; chosen->name; ++chosen)
      if (std::strcmp(chosen->name, (*argv)[i] + 9) == 0) return 0;
    std::fprintf(stderr, "no fuzz target named %s\n", (*argv)[i] + 9);
    std::exit(2);
  }
  return 0;
}
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) { return chosen->run(data, size); }
