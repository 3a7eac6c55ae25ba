// SPDX-License-Identifier: MIT
#include "tools/tokenizer_option.h"

#include "serve/embedded_model.h"
#include "tools/command.h"

namespace deepinfer {

void declare_tokenizer_option(OptionSet& options, std::string& path) {
  options.add("--tokenizer", path,
              "tokenizer.json, tokenizer.json.gz or a checkpoint folder; mini = the embedded model's (default)");
}

Result<std::shared_ptr<const Tokenizer>> open_tokenizer(const std::string& path) { return open_named_tokenizer(path); }

}  // namespace deepinfer
