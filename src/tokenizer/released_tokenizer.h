// SPDX-License-Identifier: MIT
// For tests, fuzz targets and benches: the tokenizers under testdata, loaded once.
#pragma once

#include <memory>

#include "base/check.h"
#include "tokenizer/tokenizer.h"

namespace deepinfer {

inline std::shared_ptr<const Tokenizer> shared_released_tokenizer() {
  static const auto loaded = Tokenizer::load(DEEPINFER_TESTDATA "/codec/tokenizer_v41.json.gz");
  CHECK(loaded.ok());
  return loaded.value();
}
inline const Tokenizer& released_tokenizer() { return *shared_released_tokenizer(); }

inline const Tokenizer& model_a_tokenizer() {
  static const auto loaded = Tokenizer::load(DEEPINFER_TESTDATA "/model_a");
  CHECK(loaded.ok());
  return *loaded.value();
}

}  // namespace deepinfer
