// SPDX-License-Identifier: MIT
// Checkpoints by the name that people give: a folder, or "mini", the model compiled into the program
// (cmake/embed.cmake).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/checkpoint_files.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

// The files of the embedded model; empty when the tree was built without it. Generated.
std::vector<MemoryFile> embedded_model_files();

// Errors: those of the checkpoint; unavailable when "mini" is asked for and not compiled in.
Result<Checkpoint> open_checkpoint(const std::string& name);

// The tokenizer of a checkpoint name, or of a tokenizer.json or tokenizer.json.gz.
Result<std::shared_ptr<const Tokenizer>> open_named_tokenizer(const std::string& name);

}  // namespace deepinfer
