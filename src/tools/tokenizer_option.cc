// SPDX-License-Identifier: MIT
#include "tools/tokenizer_option.h"

#include "tools/command.h"

namespace deepinfer {

void declare_tokenizer_option(OptionSet& options, std::string& path) {
  options.add("--tokenizer", path,
              "tokenizer.json, tokenizer.json.gz or a checkpoint folder; mini = the embedded model's (default)");
}

Result<std::shared_ptr<const Tokenizer>> open_tokenizer(const std::string& path) {
  if (path == "mini")
    return unavailable(
        "this build has no embedded mini model: name a tokenizer.json or a checkpoint folder with --tokenizer");
  return Tokenizer::load(path);
}

}  // namespace deepinfer
