// SPDX-License-Identifier: MIT
#include "serve/embedded_model.h"

#include <string_view>

namespace deepinfer {
namespace {

Status no_embedded_model() {
  return unavailable("this build has no embedded mini model: name a checkpoint folder instead");
}

}  // namespace

Result<Checkpoint> open_checkpoint(const std::string& name) {
  if (name != "mini") return Checkpoint::open(name);
  std::vector<MemoryFile> files = embedded_model_files();
  if (files.empty()) return no_embedded_model();
  return Checkpoint::open("mini", files_in_memory("mini", std::move(files)));
}

Result<std::shared_ptr<const Tokenizer>> open_named_tokenizer(const std::string& name) {
  if (name != "mini") return Tokenizer::load(name);
  for (const MemoryFile& file : embedded_model_files())
    if (file.name == "tokenizer.json")
      return Tokenizer::from_json({reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size()});
  return no_embedded_model();
}

}  // namespace deepinfer
