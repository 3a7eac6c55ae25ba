// SPDX-License-Identifier: MIT
// The contents of a tokenizer.json, checked: byte-level BPE with the released pre-tokenizer and nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "tokenizer/vocabulary.h"

namespace deepinfer {

struct TokenizerFile {
  struct Merge {
    TokenId left, right, result;
  };
  struct Added {
    TokenId id;
    std::string content;
    bool special, normalized;
  };
  std::vector<Vocabulary::Token> tokens;  // every id once; added tokens are control tokens
  std::vector<TokenId> byte_tokens;       // 256: the token of each single byte
  std::vector<Merge> merges;              // in rank order, pairs distinct
  std::vector<Added> added;               // contents and ids distinct
};

struct TokenizerLimits {
  size_t bytes_max = size_t{256} << 20;
  int64_t ids_max = (int64_t{1} << 20) - 256;  // every id is below it, and so is the number of merges
  size_t token_bytes_max = 4096;               // of one token
};

// Errors: invalid_argument with the path of the value and what was expected; resource_exhausted beyond a limit.
Result<TokenizerFile> read_tokenizer_json(std::string_view json, const TokenizerLimits& limits = {});

}  // namespace deepinfer
