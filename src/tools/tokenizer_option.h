// SPDX-License-Identifier: MIT
// `--tokenizer FILE` of the codec commands: a tokenizer.json, the same compressed, or a checkpoint folder.
#pragma once

#include <memory>
#include <string>

#include "base/status.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

class OptionSet;

void declare_tokenizer_option(OptionSet& options, std::string& path);
// What --tokenizer names: a file, a checkpoint folder or "mini". Errors: Tokenizer::load()'s.
Result<std::shared_ptr<const Tokenizer>> open_tokenizer(const std::string& path);

}  // namespace deepinfer
